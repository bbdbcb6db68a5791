"""`mailgres dlq`, run as a program."""

from __future__ import annotations

import csv
import gzip
import json
import os
import stat
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from support.program import PROGRAM, Program
from support.queue import HOLD, RESEND, Clock, Queue

ANA = "ana@example.com"
DAY = timedelta(days=1)


def dead(queue: Queue, template: str = HOLD, code: str | None = "550", **options: Any) -> UUID:
    queue_id = queue.enqueue(template, ANA, max_retries=0, **options)
    queue.attempt("permanent", message="no", code=code)
    return queue_id


@pytest.fixture
def letters(queue: Queue) -> dict[str, UUID]:
    """One dead letter in the archive, three in the queue, and an email that waits."""
    clock = Clock(queue.conn)
    clock.forward(-8 * DAY)
    found = {"archived": dead(queue, RESEND, tenant_id="shop", payload={"x": 'é, "y"\n'})}
    clock.forward(8 * DAY)
    queue.run("SELECT mailgres.archive_dead_letters()")
    found |= {"plain": dead(queue), "shop": dead(queue, tenant_id="shop")}
    found["no code"] = dead(queue, code=None)
    queue.enqueue(scheduled_for=clock.now + DAY)
    return found


def ids_in(queue: Queue) -> set[UUID]:
    return {row.id for row in queue.rows("SELECT id FROM email_dead_letters")}


def test_dlq_list_shows_letters_of_the_queue_and_the_archive(
    mailgres: Program, letters: dict[str, UUID]
) -> None:
    lines = mailgres("dlq", "list").splitlines()
    assert lines[0].split() == [
        *("id", "died", "reason", "code", "template", "tenant", "recipient", "attempts", "where")
    ]
    assert lines[4].split()[0] == str(letters["archived"])
    assert [line.split()[-1] for line in lines[1:]] == ["queue", "queue", "queue", "archive"]

    def chosen(*options: str) -> set[str]:
        found = {one["id"] for one in mailgres.json("dlq", "list", *options)}
        return {name for name, key in letters.items() if str(key) in found}

    assert chosen("--tenant", "shop") == {"archived", "shop"}
    assert chosen("--tenant", "shop", "--in", "queue", "--reason", "permanent") == {"shop"}
    assert chosen("--error-code", "none") == {"no code"}
    assert chosen("--error-code", "none", "--error-code", "550", "--in", "queue") == {
        *("plain", "shop", "no code")
    }
    assert chosen("--died-since", "24h") == {"plain", "shop", "no code"}
    assert chosen("--died-until", "24h", "--template", RESEND) == {"archived"}
    some = mailgres.run("dlq", "list", "--limit", "2")
    assert some.stderr == "There are more than these 2: --limit shows more.\n"
    assert mailgres.run("dlq", "list", "--error-code", "421").stderr == "No dead letter matches.\n"
    assert mailgres.fails("dlq", "list", "--template", "welcome_usr")[1].startswith(
        "Did you mean welcome_user?"
    )


def test_dlq_show_prints_the_timeline_of_a_letter(
    mailgres: Program, letters: dict[str, UUID]
) -> None:
    lines = mailgres("dlq", "show", str(letters["shop"])).splitlines()
    assert f"recipient  {ANA}" in lines
    assert "fault      550: no" in lines
    assert lines[-1].endswith("UTC  dead  capture  550  no")
    found = mailgres.json("dlq", "show", str(letters["archived"]))
    assert (found["payload"], len(found["log"])) == ({"x": 'é, "y"\n'}, 1)
    what, _ = mailgres.fails("dlq", "show", str(UUID(int=7)))
    assert what == f"There is no dead letter {UUID(int=7)}"
    assert "'7' is not an id" in mailgres.misused("dlq", "show", "7")


def test_dlq_stats_counts_by_code_reason_and_more(
    mailgres: Program, letters: dict[str, UUID]
) -> None:
    assert len(letters) == 4
    found = mailgres.json("dlq", "stats")
    counts = {(one["by"], one["name"]): (one["in_queue"], one["archived"]) for one in found}
    assert counts == {
        ("code", "550"): (2, 1),
        ("code", "none"): (1, 0),
        ("reason", "permanent"): (3, 1),
        ("template", HOLD): (3, 0),
        ("template", RESEND): (0, 1),
        ("tenant", "default"): (2, 0),
        ("tenant", "shop"): (1, 1),
    }
    lines = mailgres("dlq", "stats", "--by", "tenant", "--in", "archive").splitlines()
    assert lines[1].split()[:4] == ["tenant", "shop", "0", "1"]


def test_dlq_retry_takes_the_filters_of_retry(
    mailgres: Program, queue: Queue, letters: dict[str, UUID]
) -> None:
    assert "give --all-failed" in mailgres.misused("dlq", "retry")
    assert "only those that are failed" in mailgres.misused(
        "dlq", "retry", "--status", "cancelled", "--tenant", "shop"
    )
    order = ("dlq", "retry", "--tenant", "shop", "--yes")
    assert mailgres(*order) == "Retried 1 of 1 email.\n"
    assert queue.email(letters["shop"]).status == "pending"
    gone = mailgres.run("dlq", "retry", str(letters["archived"]), str(letters["shop"]))
    assert gone.returncode == 1
    assert "there is no such email in the queue (MG020)" in gone.stdout
    assert "the email is pending now (MG026)" in gone.stdout
    without_code = ("dlq", "retry", "--error-code", "none", "--yes")
    assert mailgres(*without_code) == "Retried 1 of 1 email.\n"
    assert mailgres("dlq", "retry", "--all-failed", "--yes") == "Retried 1 of 1 email.\n"


@pytest.mark.parametrize("name", ["dead.jsonl", "dead.csv.gz"])
def test_dlq_purge_deletes_exactly_the_exported_letters(
    mailgres: Program, queue: Queue, letters: dict[str, UUID], tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    assert mailgres("dlq", "export", str(path)) == f"4 dead letters are in {path}.\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    text = (gzip.decompress(content) if name.endswith(".gz") else content).decode()
    if ".csv" in name:
        records = list(csv.DictReader(text.splitlines(keepends=True)))
        emails = {one["id"]: json.loads(one["email"]) for one in records}
    else:
        emails = {one["id"]: one["email"] for one in map(json.loads, text.splitlines())}
    assert emails.keys() == {str(key) for key in letters.values()}
    assert emails[str(letters["archived"])]["payload"] == {"x": 'é, "y"\n'}
    assert emails[str(letters["plain"])]["attachments"] == []

    later = dead(queue)
    queue.run("SELECT retry_email(%s)", letters["plain"])
    Clock(queue.conn).forward(timedelta(minutes=1))
    queue.attempt("permanent", message="again", code="550")
    order = ("dlq", "purge", "--exported", str(path))
    assert mailgres.fails(*order)[0] == (
        "Purge 4 dead letters? There is no terminal to ask at, so nothing was done"
    )
    lines = mailgres(*order, "--dry-run").splitlines()
    assert lines[0] == "Would have purged 3 of 4 dead letters."
    assert ids_in(queue) == {*letters.values(), later}
    lines = mailgres(*order, "--yes").splitlines()
    assert lines[0] == "Purged 3 of 4 dead letters."
    assert lines[1].startswith("Skipped 1: it was changed since")
    assert ids_in(queue) == {letters["plain"], later}, "what came after the export stays"
    assert mailgres.json(*order, "--yes")["purged"] == 0


def test_dlq_export_with_purge_asks_first(
    mailgres: Program, queue: Queue, letters: dict[str, UUID], tmp_path: Path
) -> None:
    path = tmp_path / "shop.jsonl.gz"
    order = ("dlq", "export", str(path), "--tenant", "shop", "--purge")
    assert "There is no terminal" in mailgres.fails(*order)[0]
    assert not path.exists()
    assert mailgres(*order, "--yes").splitlines() == [
        f"2 dead letters are in {path}.",
        "Purged 2 of 2 dead letters.",
    ]
    assert ids_in(queue) == {letters["plain"], letters["no code"]}
    assert mailgres.fails("dlq", "export", str(path))[0] == f"{path} exists"
    assert "needs a file" in mailgres.misused("dlq", "export", "-", "--purge")


def test_dlq_purge_with_dry_run_reports_what_it_would_delete(
    mailgres: Program, queue: Queue, letters: dict[str, UUID], tmp_path: Path
) -> None:
    """The file is there, and so are the letters, which can be purged by it."""
    path = tmp_path / "shop.jsonl"
    order = ("dlq", "export", str(path), "--tenant", "shop")
    assert "--dry-run goes with --purge" in mailgres.misused(*order, "--dry-run")
    assert not path.exists()
    assert mailgres(*order, "--purge", "--dry-run").splitlines() == [
        f"2 dead letters are in {path}.",
        "Would have purged 2 of 2 dead letters.",
        "Nothing was changed: this was a dry run.",
    ]
    assert ids_in(queue) == set(letters.values())
    printed = mailgres("dlq", "purge", "--exported", str(path), "--yes")
    assert printed == "Purged 2 of 2 dead letters.\n"


def test_dlq_export_purges_letters_with_attachments_only_on_request(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    queue_id, path = dead(queue), tmp_path / "a.csv"
    queue.run("UPDATE email_queue SET has_attachments = true")
    lines = mailgres("dlq", "export", str(path), "--purge", "--yes").splitlines()
    assert lines[1] == "Purged 0 of 1 dead letter."
    assert lines[2] == "Skipped 1: it has attachments, which an export does not contain (MG027)"
    assert ids_in(queue) == {queue_id}
    order = ("dlq", "purge", "--exported", str(path), "--with-attachments", "--yes")
    assert mailgres(*order) == "Purged 1 of 1 dead letter.\n"


def test_a_letter_in_queue_and_archive_is_shown_and_exported_from_both(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    """It is in the archive, was put back into the queue, and died there again."""
    clock = Clock(queue.conn)
    twice = dead(queue)
    clock.forward(8 * DAY)
    queue.run("SELECT mailgres.archive_dead_letters()")
    queue.run(
        "INSERT INTO email_queue (id, template_type, recipient_email, status, dead_at,"
        " dead_reason, error_message)"
        " VALUES (%s, %s, %s, 'failed', mailgres.now(), 'expired', 'x')",
        *(twice, HOLD, ANA),
    )
    clock.forward(timedelta(minutes=1))
    others = {dead(queue), dead(queue)}
    path = tmp_path / "a.jsonl"
    assert mailgres("dlq", "export", str(path)) == f"4 dead letters are in {path}.\n"
    printed = mailgres("dlq", "purge", "--exported", str(path), "--yes")
    assert printed == "Purged 4 of 4 dead letters.\n"
    assert ids_in(queue).isdisjoint({twice, *others})


def test_control_characters_in_letters_do_not_reach_the_terminal(
    mailgres: Program, queue: Queue
) -> None:
    queue_id = dead(queue, code="5\x1b]0;mine\x0750")
    queue.run("UPDATE email_queue SET error_message = %s", "\x1b[2Jno\x9b1m")
    for order in (
        ("dlq", "list"), ("dlq", "stats"), ("dlq", "show", str(queue_id)), ("show", str(queue_id)),
        ("list", "--status", "failed"),
    ):  # fmt: skip
        printed = mailgres(*order)
        assert printed.replace("\n", "").isprintable(), order
    assert "\N{REPLACEMENT CHARACTER}[2Jno" in mailgres("dlq", "show", str(queue_id))


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def foreign(path: Path) -> None:
    path.write_text('{"id": "1", "name": "a file of something else"}\n')


def without_log(path: Path) -> None:
    first, *others = [json.loads(line) for line in path.read_text().splitlines()]
    del first["log"]
    path.write_text("".join(json.dumps(one) + "\n" for one in (*others, first)))


@pytest.mark.parametrize(
    ("name", "spoil", "why"),
    [
        ("a.jsonl", half, "line 4: it is not JSON"),
        ("a.csv", half, "it is not CSV"),
        ("a.jsonl.gz", half, "it ends in the middle"),
        ("a.jsonl", foreign, "line 1: this is not a dead letter"),
        ("a.jsonl", without_log, "line 4: this is not a dead letter"),
    ],
)
def test_only_a_whole_export_is_purged(  # noqa: PLR0917
    mailgres: Program, queue: Queue, letters: dict[str, UUID], tmp_path: Path,
    name: str, spoil: Any, why: str,
) -> None:  # fmt: skip
    path = tmp_path / name
    mailgres("dlq", "export", str(path))
    spoil(path)
    what, hint = mailgres.fails("dlq", "purge", "--exported", str(path), "--yes")
    assert why in what
    assert hint == "Nothing was changed. Fix the file."
    assert ids_in(queue) == set(letters.values())


def test_dlq_purge_refuses_an_export_of_another_database(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    dead(queue)
    path = tmp_path / "a.jsonl"
    mailgres("dlq", "export", str(path))
    (record,) = map(json.loads, path.read_text().splitlines())
    path.write_text(json.dumps({**record, "id": str(uuid4())}) + "\n")
    lines = mailgres("dlq", "purge", "--exported", str(path), "--yes").splitlines()
    assert lines[0] == "Purged 0 of 1 dead letter."
    assert "there is no such dead letter (MG020)" in lines[1]


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize("old", [None, "an older export\n"])
def test_a_full_disk_purges_nothing_and_leaves_no_half_file(
    mailgres: Program, queue: Queue, tmp_path: Path, old: str | None
) -> None:
    """Nothing is purged, and no half of a file stays."""
    before = ids_in(queue)
    path = tmp_path / "a.jsonl"
    if old:
        path.write_text(old)
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f 1; exec {PROGRAM} dlq export {path} --force --purge --yes"],
        env={"DATABASE_URL": mailgres.url, "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"Error: Cannot write {path}: File too large",
        f"Hint: {f'{path} is as it was' if old else f'There is no {path}'}; nothing was deleted.",
    ]
    assert [one.read_text() for one in tmp_path.iterdir()] == ([old] if old else [])
    assert ids_in(queue) == before


@pytest.mark.usefixtures("letters")
def test_an_export_into_a_broken_pipe_ends_without_traceback(mailgres: Program) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [PROGRAM, "dlq", "export", "-"], env={"DATABASE_URL": mailgres.url, "LC_ALL": "C.UTF-8"},
        stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=60,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_dlq_export_reports_a_file_that_cannot_be_created(
    mailgres: Program, tmp_path: Path
) -> None:
    what, _ = mailgres.fails("dlq", "export", str(tmp_path / "gone" / "a.csv"))
    assert what.endswith("a.csv: No such file or directory")
    assert "does not show its format" in mailgres.fails("dlq", "export", str(tmp_path / "a.xml"))[0]
    what, _ = mailgres.fails("dlq", "purge", "--exported", str(tmp_path / "a.csv"), "--yes")
    assert what.endswith("a.csv: No such file or directory")


def test_the_operator_role_may_export_and_purge_letters(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    dead(queue)
    as_role = {"PGOPTIONS": "-c role=mailgres_operator"}
    assert len(mailgres.json("dlq", "stats", **as_role)) == 4
    order = ("dlq", "export", str(tmp_path / "a.csv"), "--purge", "--yes")
    assert mailgres(*order, **as_role).endswith("Purged 1 of 1 dead letter.\n")
    assert ids_in(queue) == set()
