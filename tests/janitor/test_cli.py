"""`mailgres janitor` as an operator sees it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from janitor.harness import ME, JanitorHarness, put
from janitor.test_runner import LOCK, SCENARIOS
from mailgres.cli import main
from mailgres.janitor import JANITORS, rehearse
from support.postgres import Connect

PAGE = Path(__file__).parents[2] / "docs" / "janitors.md"


def janitor(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["janitor", *arguments])


def test_janitor_without_a_name_lists_the_janitors() -> None:
    result = janitor()
    assert result.exit_code == 0
    head, *lines = result.output.splitlines()
    assert head.split() == ["janitor", "every", "purpose"]
    assert [line.split()[0] for line in lines] == list(JANITORS)
    assert lines[0] == f"{'promote':27}  1s     makes waiting emails ready when they are due"


def test_janitor_json_lists_the_janitors() -> None:
    found = json.loads(janitor("--json").stdout)
    assert [one["name"] for one in found] == list(JANITORS)
    assert found[0] == {
        "name": "promote",
        "purpose": JANITORS["promote"].purpose,
        "every_seconds": 1.0,
        "chunk": 1000,
        "each_worker": False,
    }


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_janitor_has_a_dry_run(harness: JanitorHarness, name: str) -> None:
    """It says what the janitor would do, and does nothing."""
    is_done = SCENARIOS[name](harness)
    own = () if JANITORS[name].locked else ("--worker", "worker-1")
    before = contents(harness)
    result = janitor(name, *own, "--dry-run", "--database-url", harness.url)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "janitor": name, "handled": 1, "busy": False, "more": False, "dry_run": True
    }  # fmt: skip
    assert contents(harness) == before
    assert not is_done() or name == "heartbeat"


def contents(harness: JanitorHarness) -> dict[str, str]:
    """Every row of every table."""
    tables = harness.rows(
        "SELECT c.oid::regclass::text AS name FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND n.nspname IN ('public', 'mailgres') ORDER BY 1"
    )
    every = "SELECT coalesce(string_agg(t::text, e'\\n' ORDER BY t::text), '') FROM {} t"
    return {each.name: harness.value(every.format(each.name)) for each in tables}


def test_a_dry_run_does_one_chunk_and_notifies_nobody(
    harness: JanitorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        harness.enqueue()
    harness.run("UPDATE email_queue SET status = 'failed', error_message = 'enough'")
    harness.run("UPDATE mailgres.alert_rules SET enabled = false")
    harness.run("DELETE FROM mailgres.dead_letters_to_notify")
    picked = replace(JANITORS["notify"], chunk=2)
    done = rehearse(picked, harness.pool.connection, ME)
    assert (done.handled, done.chunks, done.more) == (2, 1, True)
    assert not [one for one in caplog.records if getattr(one, "event", None) == "JobFailed"]
    assert harness.clean("notify").handled == 3


def test_janitor_all_with_dry_run_changes_nothing(harness: JanitorHarness) -> None:
    before = contents(harness)
    result = janitor("--all", "--dry-run", "--database-url", harness.url)
    assert result.exit_code == 0, result.output
    assert all(json.loads(line)["dry_run"] for line in result.stdout.splitlines())
    assert contents(harness) == before
    assert janitor("--dry-run").exit_code == 2


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_janitor_runs_by_hand(harness: JanitorHarness, name: str) -> None:
    is_done = SCENARIOS[name](harness)
    url = harness.url
    own = () if JANITORS[name].locked else ("--worker", "worker-1")
    result = janitor(name, *own, "--database-url", url)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "janitor": name, "handled": 1, "busy": False, "more": False
    }  # fmt: skip
    assert is_done() or name == "heartbeat"


def test_janitor_reports_busy_while_a_worker_runs_the_same(
    harness: JanitorHarness, connect: Connect
) -> None:
    put(harness, "failed")
    other = connect(autocommit=False)
    other.execute(LOCK, ("archive_dead_letters",))
    result = janitor("archive_dead_letters", "--database-url", harness.url)
    assert json.loads(result.stdout)["busy"] is True
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("name", "advice"),
    [("fold_rolups", "Did you mean fold_rollups?"), ("promot", "promote?"), ("zzz", "lists them")],
)
def test_janitor_suggests_the_nearest_name(name: str, advice: str) -> None:
    result = janitor(name)
    assert result.exit_code == 2
    assert advice in result.stderr


def test_janitor_heartbeat_needs_the_name_of_a_worker(database_url: str) -> None:
    result = janitor("heartbeat", "--database-url", database_url)
    assert result.exit_code == 2
    assert "--worker" in result.stderr
    refused = janitor("heartbeat", "--worker", "", "--database-url", database_url)
    assert refused.exit_code == 1
    assert "workers_worker_check" in refused.stderr
    assert len(refused.stderr.splitlines()) == 2


def test_janitor_without_a_schema_names_migrate(empty_database_url: str) -> None:
    result = janitor("reap", "--database-url", empty_database_url)
    assert result.exit_code == 1
    assert "Hint: Run `mailgres migrate`." in result.stderr


def test_janitor_without_a_database_says_what_to_do() -> None:
    assert "No database was named" in janitor("reap").stderr


def test_the_page_on_janitors_lists_every_janitor() -> None:
    """With the interval, the chunk and the command by hand."""
    page = PAGE.read_text(encoding="utf-8")
    for one in JANITORS.values():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{one.name}` |")]
        _, _, _, interval, chunk, by_hand, _ = (cell.strip() for cell in row.split("|"))
        assert interval == f"{one.every.total_seconds():g} s"
        assert chunk == (str(one.chunk) if one.chunk else "none")
        assert by_hand.startswith(f"`mailgres janitor {one.name}")


# --- all of them


def test_janitor_all_runs_every_janitor_that_is_not_a_workers_own(harness: JanitorHarness) -> None:
    result = janitor("--all", "--database-url", harness.url)
    assert result.exit_code == 0, result.output
    done = [json.loads(line)["janitor"] for line in result.stdout.splitlines()]
    assert done == [one.name for one in JANITORS.values() if one.locked]


def test_janitor_all_runs_the_others_when_one_fails(harness: JanitorHarness) -> None:
    """Two fail; each is reported, with what to do."""
    for function in ("reap", "purge_archive"):
        harness.run(f"ALTER FUNCTION mailgres.{function} RENAME TO gone")
        harness.run(
            f"CREATE FUNCTION mailgres.{function}(int) RETURNS int LANGUAGE sql"
            " AS 'SELECT 1 / ($1 - $1)'"
        )
        harness.run("ALTER FUNCTION mailgres.gone RENAME TO gone_" + function)
    result = janitor("--all", "--database-url", harness.url)
    assert result.exit_code == 1
    done = {json.loads(line)["janitor"] for line in result.stdout.splitlines()}
    assert done == {one.name for one in JANITORS.values() if one.locked} - {"reap", "purge_archive"}
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert [line.split()[1] for line in errors] == ["reap", "purge_archive"]
    assert "Traceback" not in result.output


def test_janitor_all_without_a_schema_fails_once(empty_database_url: str) -> None:
    result = janitor("--all", "--database-url", empty_database_url)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 2
    assert "mailgres migrate" in result.stderr


def test_janitor_all_takes_no_name(database_url: str) -> None:
    for more in (("reap",), ("--worker", "w")):
        assert janitor("--all", *more, "--database-url", database_url).exit_code == 2
