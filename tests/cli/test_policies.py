"""`mailgres policies`, run as a program."""

from __future__ import annotations

import pytest

from support.program import Program
from support.queue import Clock, Queue


def test_policies_list_shows_all_policies(mailgres: Program) -> None:
    lines = mailgres("policies", "list").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        *("development", "gateway", "integration", "patient", "smtp", "stepped")
    ]
    assert lines[2].split(maxsplit=6)[:6] == ["gateway", "4", "1s", "x", "2", "up"]
    assert "-25% +25%" in lines[2]
    assert "stepped (default)  3        1m, 5m, 15m" in lines[6]
    stepped = mailgres.json("policies", "list")[-1]
    assert (stepped["default"], stepped["steps"], stepped["base"]) == (True, [60, 300, 900], None)


def test_policies_set_changes_a_policy(mailgres: Program, queue: Queue) -> None:
    clock = Clock(queue.conn)
    said = mailgres("policies", "set", "stepped", "--steps", "10m,1h", "--retries", "2")
    assert said == "stepped: 2 retries, waits 10m, 1h\n"
    queue_id = queue.enqueue()
    queue.attempt("transient", message="busy")
    email = queue.email(queue_id)
    assert (email.max_retries, (email.next_retry_at - clock.now).total_seconds()) == (2, 600)
    assert mailgres("policies", "set", "stepped", "--base", "1s", "--jitter-up", "0.5") == (
        "stepped: 2 retries, waits 1s x 2 up to 1d\n"
    )
    found = mailgres.json("policies", "list")[-1]
    assert (found["steps"], found["jitter_down"], found["jitter_up"]) == (None, 0, 0.5)


def test_policies_set_creates_a_policy(mailgres: Program, queue: Queue) -> None:
    order = ("--retries", "5", "--base", "10m", "--factor", "3", "--cap", "12h", "--jitter", "0.2")
    said = mailgres("policies", "set", "nightly", *order, "--description", "slow and steady")
    assert said == "nightly: 5 retries, waits 10m x 3 up to 12h\n"
    assert queue.email(queue.enqueue(retry_policy="nightly")).max_retries == 5


def test_the_nearest_policy_is_suggested(mailgres: Program) -> None:
    what, hint = mailgres.fails("policies", "set", "steped", "--retries", "9")
    assert what == "there is no retry policy 'steped'"
    assert hint == "Did you mean stepped? `mailgres policies list` shows all."
    _, hint = mailgres.fails("policies", "set", "zzz", "--steps", "1m")
    assert hint.startswith("To create it, give its retries and its waits. Known policies: dev")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Give an option to set"),
        (("--steps", "1m", "--base", "1s"), "not both"),
        (("--steps", "1m,soon"), "is not a duration"),
        (("--steps", ""), "is not a duration"),
        (("--base", "0s"), "too short"),
        (("--retries", "101"), "not in the range"),
        (("--factor", "0.5"), "not in the range"),
        (("--jitter", "2"), "not in the range"),
    ],
)
def test_policies_set_refuses_bad_options(
    mailgres: Program, arguments: tuple[str, ...], said: str
) -> None:
    assert said in mailgres.misused("policies", "set", "stepped", *arguments)


def test_policies_set_reports_what_the_database_refuses(mailgres: Program) -> None:
    what, _ = mailgres.fails("policies", "set", "Not A Name", "--retries", "1", "--steps", "1m")
    assert what == "the retry policy 'Not A Name' is not valid"
    assert len(mailgres.json("policies", "list")) == 6


def test_the_default_policy_and_expiry_are_chosen_by_a_command(
    mailgres: Program, queue: Queue
) -> None:
    assert mailgres("policies", "default", "patient") == (
        "default: patient; emails expire after: never\n"
    )
    assert mailgres("policies", "default", "--expires-after", "36h") == (
        "default: patient; emails expire after: 36h\n"
    )
    queue.enqueue()
    assert queue.value("SELECT retry_policy FROM email_queue") == "patient"
    assert "never" in mailgres("policies", "default", "--expires-after", "never")
    what, hint = mailgres.fails("policies", "default", "patent")
    assert what == "there is no retry policy 'patent'"
    assert hint == "Did you mean patient? `mailgres policies list` shows all."
    assert "Give a policy" in mailgres.misused("policies", "default")
    assert "is too short" in mailgres.misused("policies", "default", "--expires-after", "0s")
