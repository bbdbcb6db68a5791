"""A worker that was thought dead comes back with its old token, and changes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from claim.harness import ids
from mailgres.testing import travel

if TYPE_CHECKING:
    from collections.abc import Callable

    from claim.harness import ClaimHarness, Row

OUTCOMES = (
    "sent",
    "transient",
    "rate",
    "quota",
    "config",
    "permanent",
    "ambiguous",
    "uncertain",
)
CALLS = {
    "extend": "SELECT * FROM mailgres.extend(%s, %s, '1 hour')",
    "give_back": "SELECT * FROM mailgres.give_back(%s, %s)",
    "start_attempts": "SELECT * FROM mailgres.start_attempts(%s, %s)",
}
EVERYTHING = (
    "SELECT to_jsonb(q) FROM email_queue q ORDER BY id",
    "SELECT to_jsonb(l) FROM email_logs l ORDER BY id",
    "SELECT to_jsonb(d) FROM mailgres.rollup_deltas d",
)


def claim_each(harness: ClaimHarness, *, tokenless: bool = False) -> list[Row]:
    """Claim the three emails: each alone, because a worker died holding it."""
    claims = (harness.claim(worker="another", tokenless=tokenless) for _ in range(3))
    claimed = [row for claim in claims for row in claim]
    assert len(claimed) == 3
    return claimed


def claimed_by_another(harness: ClaimHarness) -> None:
    claim_each(harness)


def waiting_again(harness: ClaimHarness) -> None:
    assert len(harness.waiting()) == 3


def begun_by_another(harness: ClaimHarness) -> None:
    for row in claim_each(harness):
        harness.do(CALLS["start_attempts"], row["lease_token"], [row["id"]])


def claimed_by_a_processor(harness: ClaimHarness) -> None:
    claim_each(harness, tokenless=True)


def sent_by_another(harness: ClaimHarness) -> None:
    harness.finish(claim_each(harness), "sent")


def failed_at_another(harness: ClaimHarness) -> None:
    harness.finish(claim_each(harness), "permanent", message="no such address")


def cancelled(harness: ClaimHarness) -> None:
    harness.do("SELECT cancel_email(id) FROM email_queue")


SINCE = [
    claimed_by_another,
    waiting_again,
    begun_by_another,
    claimed_by_a_processor,
    sent_by_another,
    failed_at_another,
    cancelled,
]


@pytest.fixture
def stale(harness: ClaimHarness) -> list[Row]:
    """Three emails as a worker got them that was then thought dead."""
    harness.add_provider("without-keys")
    harness.add_route("default", "without-keys")
    harness.put(count=3)
    held = harness.claim(worker="thought dead")
    travel(harness.connection, timedelta(minutes=2))
    assert harness.ask("SELECT mailgres.reap()") == 3
    return held


def snapshot(harness: ClaimHarness) -> list[list[Row]]:
    return [harness.rows(query) for query in EVERYTHING]


def use_everywhere(harness: ClaimHarness, emails: list[Row]) -> None:
    """Finish, extend, give back and start under a token that holds nothing."""
    before = snapshot(harness)
    for outcome in OUTCOMES:
        reported = harness.finish(emails, outcome, message="too late", retry_after=1e12)
        assert [(row["status"], row["refused"]) for row in reported] == [(None, "MG030")] * 3, (
            outcome
        )
        assert snapshot(harness) == before, outcome
    token, email_ids = emails[0]["lease_token"], [email["id"] for email in emails]
    for name, call in CALLS.items():
        assert harness.rows(call, token, email_ids) == [], name
        assert snapshot(harness) == before, name


@pytest.mark.parametrize("since", SINCE)
def test_a_stale_token_changes_nothing(
    harness: ClaimHarness, stale: list[Row], since: Callable[[ClaimHarness], None]
) -> None:
    since(harness)
    use_everywhere(harness, stale)


def test_the_same_worker_claims_again_under_another_token(
    harness: ClaimHarness, stale: list[Row]
) -> None:
    again = harness.claim(worker="thought dead")
    assert {row["lease_token"] for row in again}.isdisjoint(row["lease_token"] for row in stale)
    use_everywhere(harness, stale)


def test_a_token_that_never_was_changes_nothing(harness: ClaimHarness, stale: list[Row]) -> None:
    harness.claim()
    use_everywhere(harness, [{**row, "lease_token": uuid4()} for row in stale])


def test_a_token_holds_only_the_emails_of_its_claim(harness: ClaimHarness) -> None:
    harness.put(count=3)
    token = harness.claim(3)[0]["lease_token"]
    harness.put(count=3)
    others = harness.claim(3)
    use_everywhere(harness, [{**row, "lease_token": token} for row in others])


def test_a_report_with_stale_tokens_counts_only_for_emails_that_are_held(
    harness: ClaimHarness, stale: list[Row]
) -> None:
    harness.put(count=2, priority=1)
    fresh = harness.claim(2, worker="another")
    reported = harness.finish([*stale, *fresh], "sent")
    assert {row["id"] for row in reported if row["refused"] == "MG030"} == ids(stale)
    assert {row["id"] for row in reported if row["status"] == "sent"} == ids(fresh)
    assert harness.ask("SELECT count(*) FROM email_queue WHERE status = 'sent'") == 2


def test_of_two_reports_on_one_email_the_stale_one_is_refused(
    harness: ClaimHarness, stale: list[Row]
) -> None:
    fresh = harness.claim(1)
    reported = harness.finish([*fresh, *(row for row in stale if row["id"] in ids(fresh))], "sent")
    assert [row["refused"] for row in reported].count("MG030") == 1
