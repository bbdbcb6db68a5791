"""`mailgres migrate` as an operator sees it."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from alembic import op
from click.testing import CliRunner, Result

from mailgres import migrate
from mailgres.cli import main
from mailgres.schema import revisions
from support.postgres import dump, run_script
from support.schema import HEAD, NEXT


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, arguments, env=env)


def two_lines(result: Result) -> tuple[str, str]:
    """Return the two lines of an error, after checking that there is nothing else."""
    assert result.exit_code == 1
    assert result.stdout == ""
    what, hint = result.stderr.splitlines()
    assert what.startswith("Error: ")
    assert hint.startswith("Hint: ")
    return what, hint


def test_migrate_help_shows_examples() -> None:
    assert "mailgres migrate --sql > mailgres.sql" in run("migrate", "-h").output


@pytest.mark.parametrize("variable", ["DATABASE_URL", "SUPABASE_DB_URL"])
def test_migrate_check_fails_until_the_schema_is_migrated(
    empty_database_url: str, variable: str
) -> None:
    env = {variable: empty_database_url}
    behind = run("migrate", "--check", env=env)
    assert "has no mailgres schema" in two_lines(behind)[0]
    assert two_lines(behind)[1] == "Hint: Run `mailgres migrate`."
    assert run("migrate", env=env).output == f"Created the schema at {HEAD}.\n"
    assert run("migrate", env=env).output == f"Nothing to do: the schema is at {HEAD}.\n"
    current = run("migrate", "--check", env=env)
    assert (current.exit_code, current.output) == (0, "The schema is up to date.\n")


def test_the_option_database_url_overrides_the_variable(empty_database_url: str) -> None:
    env = {"DATABASE_URL": "postgresql://127.0.0.1:1/none"}
    assert run("migrate", "--database-url", empty_database_url, env=env).exit_code == 0


def test_migrate_says_from_which_revision_to_which(monkeypatch: pytest.MonkeyPatch) -> None:
    change = migrate.Change(HEAD, NEXT)
    monkeypatch.setattr(migrate, "upgrade", lambda *_, **__: change)
    assert run("migrate").output == f"Migrated the schema from {HEAD} to {NEXT}.\n"


def test_notices_of_the_server_are_shown(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = revisions.run_frozen

    def with_notice(name: str) -> None:
        real(name)
        revisions.run_sql(
            op.get_context(),
            "DO $$ BEGIN RAISE NOTICE 'read this'; END $$; CREATE SCHEMA IF NOT EXISTS mailgres;",
        )

    monkeypatch.setattr(revisions, "run_frozen", with_notice)
    result = run("migrate", env={"DATABASE_URL": empty_database_url})
    assert "read this" in result.stderr
    assert "skipping" not in result.stderr
    assert result.stdout == f"Created the schema at {HEAD}.\n"


def test_migrate_sql_prints_a_script_without_a_database(empty_database_url: str) -> None:
    result = run("migrate", "--sql")
    assert result.exit_code == 0
    assert result.stderr == ""
    run_script(empty_database_url, result.stdout, "-1", "-v", "ON_ERROR_STOP=1")
    assert run("migrate", "--check", "--database-url", empty_database_url).exit_code == 0


def test_the_script_of_migrate_sql_says_at_a_second_run_that_nothing_is_to_do(
    empty_database_url: str,
) -> None:
    printed = migrate.script()
    run_script(empty_database_url, printed, "-v", "ON_ERROR_STOP=1")
    before = dump(empty_database_url)
    said = run_script(empty_database_url, printed, "-v", "ON_ERROR_STOP=1")
    assert f"revision {HEAD} is there already" in said
    assert "nothing to do: the functions, views and triggers are those of mailgres" in said
    assert dump(empty_database_url) == before


def test_migrate_sql_refuses_an_unknown_revision() -> None:
    what, hint = two_lines(run("migrate", "--sql", "--from", "0000_none"))
    assert what == "Error: There is no revision '0000_none' to start from"
    assert "--check" in hint


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sql", "--check"],
        ["--dry-run", "--check"],
        ["--downgrade", "1", "--sql"],
        ["--from", HEAD],
        ["--nonsense"],
    ],
)
def test_migrate_refuses_options_that_do_not_go_together(arguments: list[str]) -> None:
    result = run("migrate", *arguments)
    assert result.exit_code == 2
    assert "Usage: " in result.stderr


def test_migrate_without_a_database_says_what_to_do() -> None:
    assert two_lines(run("migrate")) == (
        "Error: No database was named",
        "Hint: Set DATABASE_URL or pass --database-url; `mailgres dev` starts one here.",
    )


@pytest.mark.parametrize("mode", [[], ["--check"]])
def test_migrate_reports_an_unreachable_database_without_its_password(mode: list[str]) -> None:
    url = "postgresql://me:secret@127.0.0.1:1/mail"
    what, hint = two_lines(run("migrate", *mode, env={"DATABASE_URL": url}))
    assert re.match(r"Error: Cannot connect to 127\.0\.0\.1:1/mail: .*[Cc]onnection refused", what)
    assert "Check that the server runs" in hint


@pytest.mark.parametrize("url", ["secret", "postgresql://me:se@cret@host/mail", "http://secret"])
def test_a_bad_url_is_not_repeated(url: str) -> None:
    what, hint = two_lines(run("migrate", env={"DATABASE_URL": url}))
    assert "cret" not in what + hint
    assert "percent-encode" in hint


def test_a_failed_migration_is_one_error_with_a_hint(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("CREATE TABLE email_queue (id int)")
    what, hint = two_lines(run("migrate", env={"DATABASE_URL": empty_database_url}))
    assert what.endswith('relation "email_queue" already exists')
    assert "Nothing was changed" in hint


def test_alembic_ini_is_for_developers_only(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alembic.ini").write_text("[alembic]\nscript_location = nowhere\n")
    monkeypatch.chdir(tmp_path)
    assert run("migrate", "--database-url", empty_database_url).exit_code == 0
