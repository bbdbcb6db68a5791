"""`mailgres retry`, `cancel` and `reschedule`, run as a program."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from support.postgres import Connect
from support.program import PROGRAM, Program
from support.queue import HOLD, RESEND, WITHOUT_KEYS, Queue

ANA, BOB = "ana@example.com", "bob@example.com"


def dead(
    queue: Queue, template: str = HOLD, recipient: str = ANA, outcome: str = "permanent"
) -> UUID:
    queue_id = queue.enqueue(template, recipient, max_retries=0)
    queue.attempt(outcome, message="no", code="550")
    return queue_id


def status(queue: Queue, *ids: UUID) -> list[str]:
    return [str(queue.email(key).status) for key in ids]


def at_a_terminal(mailgres: Program, *arguments: str, answer: str) -> tuple[int, str]:
    """Run it at a terminal and answer its question; return exit code and output."""
    main, side = pty.openpty()
    env = {"DATABASE_URL": mailgres.url, "LC_ALL": "C.UTF-8", "TZ": "UTC", "COLUMNS": "100"}
    with subprocess.Popen(
        [PROGRAM, *arguments], stdin=side, stdout=side, stderr=side, env=env, cwd="/"
    ) as process:
        os.close(side)
        said = b""
        while b"[y/N]:" not in said:
            said += os.read(main, 1024)
        os.write(main, answer.encode() + b"\n")
        try:
            while part := os.read(main, 1024):
                said += part
        except OSError:  # the other end is closed
            pass
        code = process.wait(60)
    os.close(main)
    return code, said.decode()


def test_retry_takes_ids(mailgres: Program, queue: Queue) -> None:
    first, second, third = dead(queue), dead(queue), dead(queue)
    assert mailgres("retry", str(first), str(second), str(first)) == "Retried 2 of 2 emails.\n"
    assert status(queue, first, second, third) == ["pending", "pending", "failed"]


def test_retry_skips_an_unknown_id_and_exits_with_1(mailgres: Program, queue: Queue) -> None:
    unknown, known = uuid4(), dead(queue)
    done = mailgres.run("retry", str(unknown), str(known))
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "Retried 1 of 2 emails.",
        "Skipped 1: there is no such email in the queue (MG020)",
        f"  {unknown}",
        "  Check the id; an email leaves the queue when its retention is over.",
    ]
    assert "is not an id" in mailgres.misused("retry", "019x")


def test_retrying_an_uncertain_email_needs_accept_duplicates(
    mailgres: Program, queue: Queue
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue_id = dead(queue, outcome="ambiguous")
    done = mailgres.run("retry", str(queue_id))
    assert done.returncode == 1
    assert "--accept-duplicates sends them again" in done.stdout
    assert status(queue, queue_id) == ["failed"]
    mailgres("retry", str(queue_id), "--accept-duplicates")
    assert status(queue, queue_id) == ["pending"]


def test_retry_by_filter_asks_first(mailgres: Program, queue: Queue) -> None:
    mine, other = [dead(queue) for _ in range(7)], dead(queue, RESEND)
    order = ("retry", "--template", HOLD)
    code, said = at_a_terminal(mailgres, *order, answer="n")
    assert code == 1
    assert f"7 emails: status failed, template {HOLD}" in said
    assert said.count(ANA) == 5, "a sample"
    assert "… and 2 more" in said
    assert "Retry 7 emails? [y/N]" in said
    assert set(status(queue, *mine)) == {"failed"}
    code, said = at_a_terminal(mailgres, *order, answer="y")
    assert code == 0
    assert "Retried 7 of 7 emails." in said
    assert set(status(queue, *mine)) == {"pending"}
    assert status(queue, other) == ["failed"]


def test_retry_by_filter_without_a_terminal_needs_yes(mailgres: Program, queue: Queue) -> None:
    queue_id = dead(queue)
    what, hint = mailgres.fails("retry", "--all-failed")
    assert what == "Retry 1 email? There is no terminal to ask at, so nothing was done"
    assert hint == "Give --yes, or --dry-run to see what would be done."
    assert status(queue, queue_id) == ["failed"]


def test_retry_with_dry_run_reports_and_changes_nothing(mailgres: Program, queue: Queue) -> None:
    queue.use_provider(WITHOUT_KEYS)
    sure, unsure = dead(queue), dead(queue, outcome="ambiguous")
    lines = mailgres("retry", "--all-failed", "--dry-run").splitlines()
    assert lines[0] == "Would have retried 1 of 2 emails."
    assert lines[1].startswith("Skipped 1: an earlier attempt may have arrived")
    assert lines[-1] == "Nothing was changed: this was a dry run."
    assert status(queue, sure, unsure) == ["failed", "failed"]


def test_retry_reports_as_json(mailgres: Program, queue: Queue) -> None:
    queue.use_provider(WITHOUT_KEYS)
    sure, unsure = dead(queue), dead(queue, outcome="ambiguous")
    report = mailgres.json("retry", "--recipient", ANA.upper(), "--yes")
    (skipped,) = report.pop("skipped")
    assert report == {
        "chosen": 2,
        "retried": 1,
        "left": 0,
        "interrupted": False,
        "dry_run": False,
    }
    assert (skipped["code"], skipped["count"]) == ("MG024", 1)
    assert skipped["examples"] == [str(unsure)]
    assert status(queue, sure) == ["pending"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("retry",), "This would select every email that is failed"),
        (("retry", "--status", "failed"), "give --all-failed."),
        (("retry", "--since", "all"), "give --all-failed."),
        (("retry", "--status", "cancelled"), "add a filter (such as --since 7d)."),
        (("retry", "--status", "failed", "--status", "pending"), "(such as --since 7d)."),
        (("cancel", "--status", "pending"), "give --all."),
        (("reschedule", "--to", "1h"), "give --all."),
        (("retry", "--status", "sent", "--tenant", "a"), "Emails that are sent cannot be retried"),
        (("retry", "--all-failed", "--status", "pending"), "leave out --status"),
        (("cancel", "--reason", "expired", "--status", "pending"), "leave out --status"),
        (("reschedule", "--reason", "expired", "--to", "1h"), "Dead emails cannot be rescheduled"),
        (("retry", str(UUID(int=1)), "--tenant", "a"), "Give ids or a filter, not both."),
        (("retry", "--since", "1h", "--until", "2h"), "nothing can match"),
        (("retry", "--since", "2999-01-01"), "in the future"),
        (("reschedule", "--all", "--to", "2001-01-01"), "--to is in the past"),
        (("reschedule", "--all", "--to", "soon"), "is not a time"),
        (("reschedule", "--all"), "Missing option '--to'"),
    ],
)
def test_bulk_actions_refuse_options_that_do_not_go_together(
    mailgres: Program, arguments: tuple[str, ...], why: str
) -> None:
    assert why in mailgres.misused(*arguments)


def test_retry_suggests_the_nearest_name(mailgres: Program) -> None:
    what, hint = mailgres.fails("retry", "--template", "welcome_usr", "--yes")
    assert "'welcome_usr'" in what
    assert hint.startswith("Did you mean welcome_user?")
    assert mailgres("retry", "--template", HOLD, "--yes") == "Retried 0 of 0 emails.\n"


def test_cancel_takes_a_filter_and_a_reason(mailgres: Program, queue: Queue) -> None:
    gone, waits = dead(queue, recipient=BOB), queue.enqueue()
    later = queue.enqueue(scheduled_for=datetime.now(UTC) + timedelta(1))
    other = queue.enqueue(tenant_id="shop")
    order = ("cancel", "--tenant", "default", "--because", "wrong price", "--yes")
    assert mailgres(*order) == "Cancelled 2 of 2 emails.\n"
    assert status(queue, waits, later, other, gone) == [
        *("cancelled", "cancelled", "pending", "failed")
    ]
    assert queue.email(waits).error_message == "wrong price"
    assert mailgres("cancel", "--reason", "permanent", "--yes") == "Cancelled 1 of 1 email.\n"
    assert mailgres("cancel", "--all", "--yes") == "Cancelled 1 of 1 email.\n"


def test_reschedule_takes_a_duration_or_a_time(mailgres: Program, queue: Queue) -> None:
    queue_id = queue.enqueue()
    assert mailgres("reschedule", str(queue_id), "--to", "2h") == "Rescheduled 1 of 1 email.\n"
    wait = queue.email(queue_id).next_retry_at - datetime.now(UTC)
    assert timedelta(minutes=110) < wait < timedelta(minutes=121)
    mailgres("reschedule", "--all", "--yes", "--to", "2999-01-31T09:00", TZ="Etc/GMT-5")
    assert queue.email(queue_id).scheduled_for == datetime(2999, 1, 31, 4, tzinfo=UTC)
    mailgres("reschedule", "--template", HOLD, "--to", "now", "--yes")
    assert queue.claim_one().id == queue_id


def test_retry_tries_locked_rows_once_more_at_the_end(
    mailgres: Program, queue: Queue, connect: Connect
) -> None:
    held, free = dead(queue), dead(queue)
    other = connect(autocommit=False)
    other.execute("SELECT FROM email_queue WHERE id = %s FOR UPDATE", [held])
    done = mailgres.run("retry", str(held), str(free))
    assert done.returncode == 1
    assert "another session is changing the email (MG026)" in done.stdout
    assert status(queue, free) == ["pending"]
    other.rollback()


def fill_with_dead(queue: Queue, count: int) -> None:
    queue.run(
        "INSERT INTO email_queue (template_type, recipient_email, status, dead_at, dead_reason,"
        " error_message, tenant_id) SELECT %s, 'user' || n || '@example.com', 'failed',"
        " now(), 'exhausted', 'busy', 'bulk' FROM generate_series(1, %s) n",
        *(HOLD, count),
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_retry_reports_and_can_be_resumed(
    mailgres: Program, queue: Queue, connect: Connect, number: signal.Signals
) -> None:
    """It is stopped while its first chunk waits for a lock; that chunk is still done."""
    fill_with_dead(queue, 1000)
    other = connect(autocommit=False)
    # The log is where every chunk has to write.
    other.execute("LOCK TABLE email_logs IN SHARE ROW EXCLUSIVE MODE")
    env = {"DATABASE_URL": mailgres.url, "LC_ALL": "C.UTF-8"}
    with subprocess.Popen(
        [PROGRAM, "retry", "--all-failed", "--yes", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd="/",
    ) as process:  # fmt: skip
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND query LIKE '%%retry_emails%%'"
        )
        while not queue.value(waiting):
            assert process.poll() is None, process.communicate()
        process.send_signal(number)
        other.rollback()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    report = json.loads(out)
    assert (report["retried"], report["left"], report["interrupted"]) == (200, 800, True)
    assert err == (
        "Interrupted. Retried 200 of 1,000 emails before that."
        " Running it again goes on with the rest.\n"
    )
    count = "SELECT count(*) FROM email_queue WHERE status = 'pending'"
    assert queue.value(count) == 200
    assert mailgres("retry", "--all-failed", "--yes") == "Retried 800 of 800 emails.\n"
    assert queue.value(count) == 1000


def test_a_lost_database_ends_retry_with_what_was_done(
    mailgres: Program, queue: Queue, connect: Connect
) -> None:
    fill_with_dead(queue, 300)
    other = connect(autocommit=False)
    other.execute("LOCK TABLE email_logs IN SHARE ROW EXCLUSIVE MODE")
    env = {"DATABASE_URL": mailgres.url, "LC_ALL": "C.UTF-8"}
    with subprocess.Popen(
        [PROGRAM, "retry", "--all-failed", "--yes"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd="/",
    ) as process:  # fmt: skip
        end = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND query LIKE '%%retry_emails%%'"
        )
        while not queue.rows(end):
            assert process.poll() is None, process.communicate()
        out, err = process.communicate(timeout=60)
    other.rollback()
    assert (process.returncode, out) == (1, "Retried 0 of 300 emails.\n")
    what, hint = err.splitlines()
    assert what == "Error: The database cannot be reached"
    assert hint == (
        "Hint: Retried 0 of 300 emails before that. Running it again goes on with the rest."
    )


def test_the_operator_role_may_retry_and_cancel(mailgres: Program, queue: Queue) -> None:
    queue_id = dead(queue)
    as_role = {"PGOPTIONS": "-c role=mailgres_operator"}
    assert mailgres("retry", "--all-failed", "--yes", **as_role) == "Retried 1 of 1 email.\n"
    assert mailgres("cancel", str(queue_id), **as_role) == "Cancelled 1 of 1 email.\n"


@pytest.mark.parametrize("options", [("--yes",), ("--dry-run",)])
def test_a_retry_by_filter_names_those_whose_address_is_suppressed(
    mailgres: Program, queue: Queue, options: tuple[str, ...]
) -> None:
    ana, bob = dead(queue), dead(queue, recipient=BOB)
    queue.suppress(BOB)
    text = mailgres("retry", "--all-failed", *options)
    assert "etried 1 of 2 emails." in text
    assert "Skipped 1: the address is suppressed (MG028)" in text
    assert str(bob) in text
    assert "mailgres suppressions remove" in text
    assert status(queue, bob) == ["failed"]
    assert status(queue, ana) == ["failed" if "--dry-run" in options else "pending"]


def test_a_retry_of_one_email_to_a_suppressed_address_fails(
    mailgres: Program, queue: Queue
) -> None:
    queue_id = dead(queue)
    queue.suppress()
    done = mailgres.run("retry", str(queue_id))
    assert done.returncode == 1
    assert "Retried 0 of 1 email." in done.stdout
    assert "the address is suppressed (MG028)" in done.stdout
