"""`mailgres list`, run as a program."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from support.program import PROGRAM, Program
from support.queue import Clock, Queue


@pytest.fixture
def emails(queue: Queue) -> Queue:
    """One that is dead, one that was sent, one that waits for its retry."""
    queue.enqueue("welcome_user", "ana@example.com", tenant_id="acme")
    queue.attempt("permanent", code="validation_error", message="no such address")
    queue.enqueue("welcome_user", "bo@example.com")
    queue.attempt("sent")
    queue.enqueue("welcome_user", "cy@example.com")
    queue.attempt("transient", code="http_503", message="away")
    return queue


def test_list_prints_a_table_of_emails(mailgres: Program, emails: Queue) -> None:
    head, *lines = mailgres("list").splitlines()
    assert head.split() == [
        *["id", "enqueued", "status", "template", "recipient", "tenant", "attempts"]
    ]
    cy, bo, ana = (line.split(maxsplit=9) for line in lines)
    assert cy[4:9] == ["pending", "welcome_user", "cy@example.com", "default", "1/4"]
    assert cy[9].startswith("http_503; next 2")
    assert bo[4:] == ["sent", "welcome_user", "bo@example.com", "default", "1/4", "by capture"]
    assert ana[4:9] == ["failed", "welcome_user", "ana@example.com", "acme", "1/4"]
    assert ana[9] == "permanent: validation_error"
    assert cy[0] == str(emails.value("SELECT max(id::text) FROM email_queue"))
    assert cy[3] == "UTC"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--status", "failed"], "ana"),
        (["--status", "FAILED", "--status", "sent"], "bo ana"),
        (["--template", "welcome_user", "--sort", "oldest"], "ana bo cy"),
        (["--tenant", "acme"], "ana"),
        (["--recipient", "BO@example.com"], "bo"),
        (["--recipient", "@example.com", "--limit", "3"], "cy bo ana"),
        (["--error-code", "http_503"], "cy"),
        (["--provider", "capture", "--status", "sent"], "bo"),
        (["--reason", "permanent"], "ana"),
        (["--since", "1h", "--status", "pending"], "cy"),
        (["--since", "all", "--sort", "retries", "--limit", "10"], "cy bo ana"),
        (["--until", "1h"], ""),
    ],
)
@pytest.mark.usefixtures("emails")
def test_list_filters_by_each_option(mailgres: Program, given: list[str], expected: str) -> None:
    found = mailgres.run("list", *given, "--json")
    names = [one["recipient_email"].partition("@")[0] for one in json.loads(found.stdout)]
    assert names == expected.split()


def test_since_and_until_filter_by_the_time_of_enqueuing(mailgres: Program, emails: Queue) -> None:
    old = emails.value(
        "INSERT INTO email_queue (id, template_type, recipient_email, created_at)"
        " SELECT mailgres.first_id_of(t), 'welcome_user', 'di@example.com', t"
        " FROM (VALUES (now() - interval '2 days')) x(t) RETURNING id::text"
    )
    day = f"{datetime.now(UTC) - timedelta(days=2, hours=1):%Y-%m-%dT%H:%M}"
    assert len(mailgres.json("list")) == 3
    assert len(mailgres.json("list", "--since", "3d")) == 4
    (found,) = mailgres.json("list", "--since", day, "--until", "1d")
    assert found["id"] == old
    (found,) = mailgres.json("list", "--until", "47h")
    assert found["id"] == old


def test_list_says_which_filter_matched_nothing(mailgres: Program) -> None:
    done = mailgres.run("list", "--status", "sent", "--since", "7d")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("No email matches: status sent, since 20")
    assert mailgres.json("list") == []


@pytest.mark.usefixtures("emails")
def test_list_says_when_there_are_more_than_shown(mailgres: Program) -> None:
    done = mailgres.run("list", "--limit", "2")
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == "There are more than these 2: --limit shows more.\n"


@pytest.mark.parametrize(
    ("option", "name", "meant"),
    [
        ("--template", "welcom_user", "welcome_user"),
        ("--tenant", "amce", "acme"),
        ("--provider", "captuer", "capture"),
    ],
)
def test_list_suggests_the_nearest_name_for_an_unknown_one(
    mailgres: Program, emails: Queue, option: str, name: str, meant: str
) -> None:
    emails.run("SELECT mailgres.fold_rollups()")
    what, hint = mailgres.fails("list", option, name)
    assert what == f"There is no {option[2:]} {name!r}"
    assert hint.startswith(f"Did you mean {meant}?")


@pytest.mark.parametrize("folded", [False, True])
def test_names_of_waiting_and_of_old_emails_are_known(
    mailgres: Program, queue: Queue, *, folded: bool
) -> None:
    clock = Clock(queue.conn)
    clock.forward(timedelta(days=-20))
    queue.enqueue(tenant_id="old")
    queue.attempt("sent")
    clock.forward(timedelta(days=20))
    queue.enqueue(tenant_id="new")
    if folded:
        queue.run("SELECT mailgres.fold_rollups()")
    for tenant in ("old", "new"):
        done = mailgres.run("list", "--tenant", tenant, "--status", "cancelled")
        assert (done.returncode, done.stdout) == (0, ""), done
        assert done.stderr.startswith("No email matches: status cancelled, tenant ")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--since", "soon"], "'soon' is not a time"),
        (["--until", "1x"], "'1x' is not a time"),
        (["--since", "2999-01-01"], "it is in the future"),
        (["--since", "1h", "--until", "2h"], "nothing can match"),
        (["--status", "sent", "--reason", "expired"], "--reason selects dead emails"),
        (["--status", "fialed"], "'fialed' is not one of"),
        (["--limit", "0"], "0 is not in the range"),
        (["--sort", "size"], "'size' is not one of"),
    ],
)
def test_list_refuses_bad_options(mailgres: Program, given: list[str], why: str) -> None:
    assert why in mailgres.misused("list", *given)


def test_list_ends_quietly_when_its_reader_stops(mailgres: Program, queue: Queue) -> None:
    queue.run(
        "INSERT INTO email_queue (template_type, recipient_email)"
        " SELECT 'welcome_user', 'ana@example.com' FROM generate_series(1, 5000)"
    )
    done = subprocess.run(
        ["bash", "-c", f"{PROGRAM} list --limit 5000 | head -n 1"],
        env={"DATABASE_URL": mailgres.url, "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("id ")
    assert done.stderr == ""
