"""`mailgres recover`: its refusals, its listing and each of its decisions."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from support.program import Program
from support.queue import HOLD, RESEND, WITH_KEYS, WITHOUT_KEYS, Clock, Queue

HOUR = timedelta(hours=1)
SINCE = ("recover", "--since", "1h")


def decisions(mailgres: Program, *options: str) -> dict[str, str]:
    found = mailgres.json(*SINCE, *options)
    return {one["id"]: one["action"] for one in found["emails"]}


def decision(mailgres: Program, queue_id: UUID) -> str:
    return decisions(mailgres, "--dry-run")[str(queue_id)]


def test_a_provider_without_keys_holds_or_resends_as_the_template_says(
    mailgres: Program, queue: Queue
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    held, sent = queue.enqueue(HOLD), queue.enqueue(RESEND)
    assert decisions(mailgres, "--yes") == {str(held): "hold", str(sent): "resend"}
    row = queue.email(held)
    assert (row.status, row.dead_reason, row.error_class) == ("failed", "uncertain", "ambiguous")
    assert queue.email(sent).uncertain_since is not None
    (claimed,) = queue.claim()
    assert claimed.id == sent
    with pytest.raises(psycopg.Error, match="may deliver it twice"):
        queue.run("SELECT retry_email(%s)", held)
    queue.run("SELECT retry_email(%s, true)", held)
    assert queue.email(held).generation == 1


def test_a_key_protects_an_email_that_goes_alone_within_its_window(
    mailgres: Program, queue: Queue
) -> None:
    queue.use_provider(WITH_KEYS)
    alone = queue.enqueue(HOLD, priority=1)
    assert decision(mailgres, alone) == "key"
    queue.run("UPDATE mailgres.providers SET key_window = '30 minutes'")
    assert decision(mailgres, alone) == "hold", "the provider has forgotten the key"
    queue.run("UPDATE mailgres.providers SET key_window = '23 hours'")
    queue.run("INSERT INTO mailgres.route_providers VALUES ('default', 2, 'capture')")
    assert decision(mailgres, alone) == "hold", "another provider may have sent it"


def test_the_key_of_a_batch_is_lost_and_protects_nothing(mailgres: Program, queue: Queue) -> None:
    queue.use_provider(WITH_KEYS)
    queue.run("UPDATE mailgres.providers SET batch_size = 100, fixed_batches = true")
    ordinary, urgent = queue.enqueue(HOLD), queue.enqueue(HOLD, priority=2)
    assert decisions(mailgres, "--yes") == {str(ordinary): "hold", str(urgent): "key"}
    (claimed,) = queue.claim()
    assert (claimed.id, claimed.generation, claimed.batch_id) == (urgent, 0, None)
    with pytest.raises(psycopg.Error, match="may deliver it twice"):
        queue.run("SELECT retry_email(%s)", ordinary)


def test_recover_leaves_emails_that_cannot_have_been_sent_unchanged(
    mailgres: Program, queue: Queue
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.run("SELECT cancel_email(%s)", queue.enqueue())
    queue.enqueue()
    queue.attempt("permanent")
    queue.run(
        "SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', '{}',"
        " p_scheduled_for => now() + interval '1 day')"
    )
    assert decisions(mailgres, "--dry-run") == {}
    said = mailgres(*SINCE, "--yes").splitlines()
    assert said[0].startswith("0 emails may have been sent between ")
    queue.run("UPDATE mailgres.route_providers SET provider = 'capture'")
    queue.enqueue()
    assert decisions(mailgres, "--dry-run") == {}, "nothing left the database"


def test_recover_keeps_emails_in_progress_and_uncertain_emails(
    mailgres: Program, queue: Queue
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue()
    held = queue.claim_one()
    assert decision(mailgres, held.id) == "in_progress"
    queue.start_attempts([held])
    queue.run("UPDATE email_queue SET lease_until = now() - interval '1 second'")
    assert decision(mailgres, held.id) == "kept"
    queue.run("UPDATE email_queue SET attempt_started_at = NULL")
    assert decision(mailgres, held.id) == "hold", (
        "its worker did not start, but a later one may have"
    )


def test_emails_that_were_enqueued_after_the_failover_are_not_concerned(
    mailgres: Program, queue: Queue
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    clock = Clock(queue.conn)
    before = queue.enqueue()
    clock.forward(timedelta(minutes=1))
    queue.run("UPDATE mailgres.home SET server = gen_random_uuid()")
    queue.reap()  # notices the failover
    clock.forward(timedelta(minutes=1))
    queue.enqueue()
    assert decisions(mailgres, "--dry-run").keys() == {str(before)}
    until = ("--until", (clock.now - HOUR / 2).isoformat())
    assert decisions(mailgres, *until, "--dry-run") == {}


def test_recover_with_dry_run_or_without_consent_changes_nothing(
    mailgres: Program, queue: Queue
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue(HOLD)
    before = queue.rows("SELECT * FROM email_queue")
    said = mailgres(*SINCE, "--dry-run")
    assert "     1  hold         become dead letters with the reason uncertain" in said
    assert said.endswith("Nothing was changed: this was a dry run.\n")
    what, todo = mailgres.fails(*SINCE)
    assert what == "Make 1 email uncertain? There is no terminal to ask at, so nothing was done"
    assert "--yes" in todo
    assert queue.rows("SELECT * FROM email_queue") == before


def test_recover_settles_emails_that_a_file_knows_and_lists_lost_ones(
    mailgres: Program, queue: Queue, tmp_path: Path
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    sent, known, unsent, gone = queue.enqueue(), queue.enqueue(), queue.enqueue(), uuid4()
    queue.run("SELECT mark_email_sent(%s, 'x')", known)
    file = tmp_path / "known.csv"
    lines = [f"{sent},m1", f"{known},m2", f"{unsent},", f"{gone},m3"]
    file.write_text("\n".join(["id,provider_message_id", *lines]) + "\n")
    found = mailgres.json(*SINCE, "--known", str(file), "--yes")
    assert {one["id"]: one["result"] for one in found["known"]} == {
        str(sent): "settled", str(known): "sent", str(unsent): "open", str(gone): "lost",
    }  # fmt: skip
    row = queue.email(sent)
    assert (row.status, row.provider_message_id) == ("sent", "m1")
    assert [one["id"] for one in found["emails"]] == [str(unsent)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("email\nx\n", "has no column id"),
        ("id\nnot-a-uuid\n", "line 2: not the id of an email"),
        ("", "has no column id"),
    ],
)
def test_recover_with_a_malformed_file_changes_nothing(
    mailgres: Program, queue: Queue, tmp_path: Path, text: str, says: str
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue()
    file = tmp_path / "known.csv"
    file.write_text(text)
    what, _ = mailgres.fails(*SINCE, "--known", str(file), "--yes")
    assert says in what
    assert queue.value("SELECT status FROM email_queue") == "pending"


@pytest.mark.parametrize("given", ["NULL", "now() + interval '1 hour'"])
def test_a_recovery_needs_a_past_time(queue: Queue, given: str) -> None:
    with pytest.raises(psycopg.Error, match="the time that the database went back to") as caught:
        queue.run(f"SELECT mailgres.recover({given})")
    assert caught.value.sqlstate == "MG100"


def test_many_emails_are_recovered_in_steps(mailgres: Program, queue: Queue) -> None:
    queue.use_provider(WITHOUT_KEYS)
    given: dict[str, Any] = {"template": HOLD}
    queue.conn.execute(
        "INSERT INTO email_queue (template_type, recipient_email, ready)"
        " SELECT %(template)s, 'a@example.com', true FROM generate_series(1, 2500)",
        given,
    )
    said = mailgres(*SINCE, "--yes", "--limit", "3")
    assert "  2,500  hold" in said
    assert "… and 2,497 more; --json prints all" in said
    assert queue.value("SELECT count(*) FROM email_queue WHERE dead_reason = 'uncertain'") == 2500
