"""`mailgres enqueue`, run as a program."""

from __future__ import annotations

import gzip
import json
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.postgres import Connect
from support.program import PROGRAM, Program
from support.queue import Queue

WELCOME = ("enqueue", "welcome_user", "ana@example.com")


def rows(queue: Queue, columns: str = "recipient_email") -> list[Any]:
    return [tuple(row) for row in queue.rows(f"SELECT {columns} FROM email_queue ORDER BY id")]


def test_enqueue_stores_every_option(mailgres: Program, queue: Queue) -> None:
    printed = mailgres(
        *WELCOME, "--payload", '{"name": "Ana"}', "--priority", "2", "--tenant", "acme",
        "--idempotency-key", "once", "--correlation-id", "c-1", "--max-retries", "7",
        "--policy", "patient",
    )  # fmt: skip
    email = queue.row("SELECT * FROM email_queue")
    assert printed == f"{email.id}\n"
    assert (email.recipient_email, email.payload) == ("ana@example.com", {"name": "Ana"})
    assert (email.priority, email.tenant_id, email.max_retries) == (2, "acme", 7)
    assert (email.correlation_id, email.retry_policy) == ("c-1", "patient")
    again = (*WELCOME, "--payload", '{"name": "Ana"}', "--tenant", "acme")
    assert mailgres.json(*again, "--idempotency-key", "once") == {"id": str(email.id)}
    assert len(rows(queue)) == 1


def test_enqueue_schedule_and_expires_take_durations_and_times(
    mailgres: Program, queue: Queue
) -> None:
    printed = mailgres(*WELCOME, "--schedule", "2h", "--expires", "2999-01-01T09:00")
    assert " to be sent at 20" in printed
    ((scheduled, expires),) = rows(queue, "scheduled_for, expires_at")
    assert abs(scheduled - datetime.now(UTC) - timedelta(hours=2)) < timedelta(minutes=5)
    assert expires == datetime(2999, 1, 1, 9, tzinfo=UTC)


def test_enqueue_reads_the_payload_from_a_file_or_standard_input(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    file = tmp_path / "ana.json"
    file.write_text('{"name": "Ana"}')
    mailgres(*WELCOME, "--payload", f"@{file}")
    piped(mailgres, '{"name": "Bo"}', *WELCOME, "--payload", "-")
    assert rows(queue, "payload ->> 'name'") == [("Ana",), ("Bo",)]


def piped(mailgres: Program, text: str, *arguments: str) -> str:
    return subprocess.run(
        [PROGRAM, *arguments],
        env={"DATABASE_URL": mailgres.url, "LC_ALL": "C.UTF-8"},
        input=text,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize(
    ("given", "what", "hint"),
    [
        (
            ["--payload", '{"name": "Ana" "url": 1}'],
            "The payload is not JSON: Expecting ',' delimiter at line 1, character 16: {",
            "Give a mapping",
        ),
        (["--payload", ""], "The payload is not JSON: Expecting value at line 1, ch", "Give a"),
        (["--payload", "[1]"], "The payload is not a JSON object", "Give a mapping"),
        (["--payload", "@/nowhere"], "/nowhere: No such file or directory", "Name a file"),
        (["--route", "nowhere"], "there is no route 'nowhere'", "Known routes: default"),
    ],
)
def test_enqueue_refuses_bad_values_and_stores_nothing(
    mailgres: Program, queue: Queue, given: list[str], what: str, hint: str
) -> None:
    found, advice = mailgres.fails(*WELCOME, *given)
    assert found.startswith(what)
    assert advice.startswith(hint)
    assert rows(queue) == []


def test_the_error_about_a_single_email_names_no_position(mailgres: Program) -> None:
    what, _ = mailgres.fails("enqueue", "welcome_user", "ana@example")
    assert what == "recipient_email is not an email address"


def test_a_malformed_payload_is_shown_with_the_character(mailgres: Program) -> None:
    what, _ = mailgres.fails(*WELCOME, "--payload", '{"name": "Ana" "url": 1}')
    assert what.endswith(', character 16: {"name": "Ana" -->"url": 1}')


@pytest.mark.parametrize(
    ("payload", "end"),
    [
        ('{"name": "Ana"\n', "line 2, character 1: -->"),
        ('{"name":\n\n', "line 3, character 1: -->"),
        ("", "line 1, character 1: -->"),
        ('{"a": "\x85\u2028",\n "b" 1}', 'line 2, character 6:  "b" -->1}'),
    ],
)
def test_a_payload_that_ends_too_early_is_shown_with_its_end(
    mailgres: Program, payload: str, end: str
) -> None:
    """The place is behind the last line of a payload that ends too early."""
    what, _ = mailgres.fails(*WELCOME, "--payload", payload)
    assert what.endswith(end)


def test_enqueue_suggests_the_nearest_template(mailgres: Program) -> None:
    what, hint = mailgres.fails("enqueue", "welcom_user", "ana@example.com")
    assert what == "There is no template 'welcom_user'"
    assert hint == "Did you mean welcome_user? `mailgres templates list` shows all."


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "Name a template and a recipient"),
        (["welcome_user"], "Name a template and a recipient"),
        ([*WELCOME[1:], "--schedule", "2020-01-01"], "it is in the past"),
        ([*WELCOME[1:], "--schedule", "soon"], "'soon' is not a time"),
        ([*WELCOME[1:], "--priority", "0"], "0 is not in the range"),
        ([*WELCOME[1:], "--csv", "x.csv"], "The recipients are in the file"),
        (["--csv", "x.csv", "--jsonl", "y.jsonl"], "Give --csv or --jsonl, not both"),
        ([*WELCOME[1:], "--report", "x"], "are for files"),
        (["--csv", "-", "--continue-on-error"], "for the report of bad lines"),
    ],
)
def test_enqueue_refuses_options_that_do_not_go_together(
    mailgres: Program, given: list[str], why: str
) -> None:
    assert why in mailgres.misused("enqueue", *given)


def test_enqueue_with_dry_run_stores_nothing(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    assert mailgres(*WELCOME, "--dry-run").startswith("It would be enqueued.")
    file = tmp_path / "two.csv"
    file.write_text("recipient\nana@example.com\nbo@example.com\n")
    assert mailgres("enqueue", "welcome_user", "--csv", str(file), "--dry-run") == (
        "Would enqueue 2 emails.\n"
    )
    assert rows(queue) == []


def test_enqueue_csv_reads_columns_as_fields_or_payload(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    """Columns are fields, or variables of the payload; an empty cell says nothing."""
    file = tmp_path / "readers.csv.gz"
    text = (
        "recipient,name,priority,payload\n"
        'ana@example.com,Ana,2,"{""url"": ""u""}"\n'
        'bo@example.com,"Bo, the\nsecond",,\n'
    )
    file.write_bytes(gzip.compress(text.encode()))
    printed = mailgres("enqueue", "welcome_user", "--csv", str(file), "--tenant", "acme")
    assert printed == "Enqueued 2 emails.\n"
    assert rows(queue, "recipient_email, payload, priority, tenant_id") == [
        ("ana@example.com", {"name": "Ana", "url": "u"}, 2, "acme"),
        ("bo@example.com", {"name": "Bo, the\nsecond"}, 5, "acme"),
    ]


def test_enqueue_jsonl_takes_both_spellings_of_fields(mailgres: Program, queue: Queue) -> None:
    lines = [
        {"template": "welcome_user", "recipient": "ana@example.com", "payload": {"name": "Ana"}},
        {"template_type": "welcome_user", "recipient_email": "bo@example.com"},
    ]
    text = "\n".join(map(json.dumps, lines))
    given = ("enqueue", "--jsonl", "-", "--payload", '{"name": "you"}', "--json")
    reported = json.loads(piped(mailgres, text, *given))
    assert reported == {"enqueued": 2, "bad": 0, "report": None, "dry_run": False}
    assert rows(queue, "recipient_email, payload ->> 'name'") == [
        ("ana@example.com", "Ana"),
        ("bo@example.com", "you"),
    ]


def test_the_same_file_with_an_idempotency_key_is_enqueued_once(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    file = tmp_path / "two.csv"
    file.write_text("recipient\nana@example.com\nbo@example.com\n")
    for _ in range(2):
        mailgres("enqueue", "welcome_user", "--csv", str(file), "--idempotency-key", "november")
    assert rows(queue, "idempotency_key") == [("november:2",), ("november:3",)]


BAD = """\
recipient,priority,payload
ana@example.com,5,{}
nobody,5,{}
bo@example.com,high,{}
cy@example.com,5,{
di@example.com,12,{}
ed@example.com,5,{}
"""


def test_enqueue_enqueues_nothing_of_a_file_with_bad_lines(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(BAD)
    what, hint = mailgres.fails("enqueue", "welcome_user", "--csv", str(file))
    assert what == (
        f"{file}, line 3: recipient_email is not an email address (3 more lines are bad)"
    )
    assert hint.endswith("Nothing was enqueued; --continue-on-error skips bad lines.")
    assert rows(queue) == []


def test_enqueue_with_continue_on_error_skips_bad_lines(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(BAD)
    printed = mailgres("enqueue", "welcome_user", "--csv", str(file), "--continue-on-error")
    report = Path(f"{file}.errors.jsonl")
    assert printed == (f"Enqueued 2 emails.\nSkipped 4 bad lines: see {report}.\n")
    assert rows(queue) == [("ana@example.com",), ("ed@example.com",)]
    reported = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(one["line"], one["code"]) for one in reported] == [
        (3, "MG002"),
        (4, "MG015"),
        (5, "MG015"),
        (6, "MG006"),
    ]
    assert "bo@" not in report.read_text()


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--csv", "recipient\nana@example.com\nbo@example.com,1\ned@example.com\n"),
        ("--jsonl", '{"recipient": "ana@example.com"}\n{oh\n{"recipient": "ed@example.com"}\n'),
        ("--jsonl", '{"recipient": "ana@example.com"}\n[]\n{"recipient": "ed@example.com"}\n'),
    ],
)
def test_enqueue_with_continue_on_error_skips_lines_that_are_no_records(
    mailgres: Program, queue: Queue, tmp_path: Path, option: str, text: str
) -> None:
    file = tmp_path / "bad"
    file.write_text(text)
    _, hint = mailgres.fails("enqueue", "welcome_user", option, str(file))
    assert hint.endswith("Nothing was enqueued; --continue-on-error skips bad lines.")
    assert rows(queue) == []
    mailgres("enqueue", "welcome_user", option, str(file), "--continue-on-error")
    assert rows(queue) == [("ana@example.com",), ("ed@example.com",)]
    (reported,) = map(json.loads, Path(f"{file}.errors.jsonl").read_text().splitlines())
    assert (reported["line"], reported["code"]) == (2 if option == "--jsonl" else 3, "MG015")


def test_enqueue_reports_the_line_whose_key_was_used_for_another_email(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    queue.enqueue(idempotency_key="k")
    file = tmp_path / "two.csv"
    file.write_text("recipient,idempotency_key\nbo@example.com,k\ncy@example.com,l\n")
    what, hint = mailgres.fails("enqueue", "welcome_user", "--csv", str(file))
    assert what == f"{file}, line 2: the idempotency key was used before for another email"
    assert hint.endswith("Nothing was enqueued.")
    assert len(rows(queue)) == 1
    mailgres("enqueue", "welcome_user", "--csv", str(file), "--continue-on-error")
    assert rows(queue)[1:] == [("cy@example.com",)]
    (reported,) = map(json.loads, Path(f"{file}.errors.jsonl").read_text().splitlines())
    assert (reported["line"], reported["code"]) == (2, "MG009")


@pytest.mark.parametrize(
    ("text", "line"), [("recipient\nana@example.com,1\n", 2), ('recipient\n"ana', 2)]
)
def test_a_malformed_csv_file_is_refused_with_its_line(
    mailgres: Program, queue: Queue, tmp_path: Path, text: str, line: int
) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text)
    what, _ = mailgres.fails("enqueue", "welcome_user", "--csv", str(file))
    assert what.startswith(f"{file}, line {line}: ")
    assert rows(queue) == []


def test_enqueue_reports_unknown_keys_and_a_missing_file(mailgres: Program, tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text('{"template": "welcome_user", "to": "ana@example.com"}\n')
    what, _ = mailgres.fails("enqueue", "--jsonl", str(file))
    assert what == f"{file}, line 1: there is no key 'to'"
    what, _ = mailgres.fails("enqueue", "--jsonl", str(tmp_path / "none.jsonl"))
    assert what.endswith("none.jsonl: No such file or directory")


def test_more_than_a_chunk_is_all_or_none(mailgres: Program, queue: Queue, tmp_path: Path) -> None:
    file = tmp_path / "many.csv"
    good = "".join(f"user{n}@example.com\n" for n in range(2500))
    file.write_text(f"recipient\n{good}")
    mailgres("enqueue", "welcome_user", "--csv", str(file))
    assert len(rows(queue)) == 2500
    file.write_text(f"recipient\n{good}nobody\n")
    what, _ = mailgres.fails("enqueue", "welcome_user", "--csv", str(file))
    assert what == f"{file}, line 2502: recipient_email is not an email address"
    assert len(rows(queue)) == 2500


def test_an_interrupted_enqueue_reports_what_was_done(
    mailgres: Program, queue: Queue, connect: Connect, tmp_path: Path
) -> None:
    """The second chunk waits for a transaction with the same key; then it is interrupted."""
    file, report = tmp_path / "many.jsonl", tmp_path / "bad.jsonl"
    lines = [{"recipient": f"user{n}@example.com"} for n in range(1001)]
    lines[7] = {"recipient": "nobody"}
    lines[1000]["idempotency_key"] = "k"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    other = connect(autocommit=False)
    Queue(other).enqueue(idempotency_key="k")
    order = ("enqueue", "welcome_user", "--jsonl", str(file), "--continue-on-error")
    done = mailgres.interrupted(queue, *order, "--report", str(report))
    other.rollback()
    assert done.returncode == 130
    assert "999 emails were enqueued before that" in done.stderr
    assert f"{report} lists 1 bad line so far." in done.stderr
    assert [json.loads(line)["line"] for line in report.read_text().splitlines()] == [8]
    assert len(rows(queue)) == 999


def test_an_interrupted_enqueue_of_a_file_enqueues_nothing(
    mailgres: Program, queue: Queue, connect: Connect, tmp_path: Path
) -> None:
    """The third chunk waits for a transaction with the same key; then it is interrupted."""
    file = tmp_path / "many.csv"
    lines = [f"user{n}@example.com,{'k' if n == 2500 else ''}\n" for n in range(3000)]
    file.write_text("recipient,idempotency_key\n" + "".join(lines))
    other = connect(autocommit=False)
    Queue(other).enqueue(idempotency_key="k")
    done = mailgres.interrupted(queue, "enqueue", "welcome_user", "--csv", str(file))
    other.rollback()
    assert done.returncode == 130
    assert (done.stdout, done.stderr) == ("", "\nInterrupted. Nothing was enqueued.\n")
    assert rows(queue) == []
    mailgres("enqueue", "welcome_user", "--csv", str(file))
    assert len(rows(queue)) == 3000


def test_a_report_takes_no_other_files_place(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(BAD)
    order = ("enqueue", "welcome_user", "--csv", str(file), "--continue-on-error", "--report")
    assert "--report names the input file" in mailgres.misused(*order, f"{tmp_path}/./bad.csv")
    other = tmp_path / "other.jsonl"
    other.write_text("mine")
    assert mailgres.fails(*order, str(other))[0] == f"{other} exists"
    assert mailgres.fails(*order, f"{tmp_path}/no/a")[0] == f"Cannot write {tmp_path}/no/a"
    assert (file.read_text(), other.read_text(), rows(queue)) == (BAD, "mine", [])
    packed = tmp_path / "report.jsonl.gz"
    mailgres(*order, str(packed))
    assert len(gzip.decompress(packed.read_bytes()).splitlines()) == 4
    assert stat.S_IMODE(packed.stat().st_mode) == 0o600
