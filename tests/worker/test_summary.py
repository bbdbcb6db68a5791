"""The summary of a run accounts for every email that was claimed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mailgres.model import Message, Result
from mailgres.worker import Summary
from support.queue import RESEND, Queue
from worker.double import Double
from worker.harness import WorkerHarness, until

LEAVES = {
    "sent": Result("sent", "id"),
    "transient": Result("transient", code="later"),
    "permanent": Result("permanent", code="no"),
    "ambiguous": Result("ambiguous", code="lost"),
}


@dataclass
class Fickle(Double):
    """Answers as it likes, while another session settles emails that are in flight."""

    queue: Queue | None = None
    dice: random.Random = field(default_factory=random.Random)

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        roll = self.dice.random()
        if roll < 0.1 and self.queue is not None:
            self.queue.run("SELECT mark_email_sent(%s, 'elsewhere')", messages[0].email.id)
        elif roll < 0.2:
            raise ZeroDivisionError
        return [self.dice.choice(list(LEAVES.values())) for _ in messages]


def total(reported: Summary | dict[str, Any]) -> int:
    """All ways in which a claimed email can leave a run."""
    given = reported.as_dict() if isinstance(reported, Summary) else reported
    ways = ("sent", "retried", "dead", "lost", "given_back", "refused")
    return sum(int(given[way]) for way in ways)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("idempotent", [True, False])
def test_whatever_happens_a_summary_accounts_for_every_email(
    harness: WorkerHarness, seed: int, *, idempotent: bool
) -> None:
    dice = random.Random(seed)  # noqa: S311 - faults, not secrets
    harness.use_double(idempotent=idempotent)
    harness.run("UPDATE mailgres.providers SET failure_threshold = 1000")
    harness.fill(40, template=RESEND, tenants=3)
    # Between the claim and the call another session changes the email.
    harness.run(
        "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.status = 'sending' AND OLD.status = 'pending'"
        f" AND hashtext(NEW.recipient_email || '{seed}') % 4 = 0 THEN"
        "   INSERT INTO public.email_suppressions (recipient_email, tenant_id, reason)"
        "   VALUES (lower(NEW.recipient_email), '*', 'manual') ON CONFLICT DO NOTHING;"
        " END IF; RETURN NULL; END $$;"
        " CREATE TRIGGER meddle AFTER UPDATE ON email_queue FOR EACH ROW EXECUTE FUNCTION meddle()"
    )
    provider = Fickle(harness.ledger, idempotent=idempotent, queue=harness, dice=dice)
    reported = harness.drain(provider, concurrency=1, batch_size=7)
    assert reported.claimed >= 40
    assert reported.claimed == total(reported)
    assert (reported.refused > 0) is not idempotent  # the others are sent under their claim
    log = Counter(row.event for row in harness.rows("SELECT event FROM email_logs"))
    elsewhere = harness.value("SELECT count(*) FROM email_queue WHERE resend_id = 'elsewhere'")
    assert reported.sent == log["sent"] - elsewhere
    assert reported.retried == log["retry"] + log["deferred"]
    assert reported.dead == log["dead"]
    assert reported.lost == elsewhere


def test_what_is_still_under_way_when_the_grace_is_over_is_lost(harness: WorkerHarness) -> None:
    harness.use_double()
    harness.fill(3)
    with harness.worker(concurrency=1, grace=0.5, double={"hang": "inside"}) as worker:
        until(lambda: harness.ledger.entries("inside"), "a call is under way")
        reported = worker.stop()
    assert (reported["claimed"], reported["lost"], reported["given_back"]) == (3, 1, 2)
    assert reported["claimed"] == total(reported)


def test_emails_cancelled_since_the_claim_are_counted_as_refused(harness: WorkerHarness) -> None:
    harness.use_double(idempotent=False)
    (queue_id,) = harness.fill(1)

    with harness.here(Double(harness.ledger, idempotent=False)) as worker:
        claim = worker.claimer.claim

        def then_cancel(limit: int) -> Any:
            emails = claim(limit)
            harness.run("SELECT cancel_email(%s) WHERE %s", queue_id, bool(emails))
            return emails

        worker.claimer.claim = then_cancel  # type: ignore[method-assign]
        reported = worker.drain()
    assert (reported.claimed, reported.refused, total(reported)) == (1, 1, 1)
    assert harness.status_of(queue_id) == "cancelled"
