"""A worker that was thought dead comes back with its old token, and changes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from claim.workbench import ids
from mailgres.testing import travel

if TYPE_CHECKING:
    from collections.abc import Callable

    from claim.workbench import Row, Workbench

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


def claim_each(bench: Workbench, *, tokenless: bool = False) -> list[Row]:
    """Claim the three emails: each alone, because a worker died holding it."""
    claims = (bench.claim(worker="another", tokenless=tokenless) for _ in range(3))
    claimed = [row for claim in claims for row in claim]
    assert len(claimed) == 3
    return claimed


def claimed_by_another(bench: Workbench) -> None:
    claim_each(bench)


def waiting_again(bench: Workbench) -> None:
    assert len(bench.waiting()) == 3


def begun_by_another(bench: Workbench) -> None:
    for row in claim_each(bench):
        bench.do(CALLS["start_attempts"], row["lease_token"], [row["id"]])


def claimed_by_a_processor(bench: Workbench) -> None:
    claim_each(bench, tokenless=True)


def sent_by_another(bench: Workbench) -> None:
    bench.finish(claim_each(bench), "sent")


def failed_at_another(bench: Workbench) -> None:
    bench.finish(claim_each(bench), "permanent", message="no such address")


def cancelled(bench: Workbench) -> None:
    bench.do("SELECT cancel_email(id) FROM email_queue")


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
def stale(bench: Workbench) -> list[Row]:
    """Three emails as a worker got them that was then thought dead."""
    bench.add_provider("without-keys")
    bench.add_route("default", "without-keys")
    bench.put(count=3)
    held = bench.claim(worker="thought dead")
    travel(bench.connection, timedelta(minutes=2))
    assert bench.ask("SELECT mailgres.reap()") == 3
    return held


def snapshot(bench: Workbench) -> list[list[Row]]:
    return [bench.rows(query) for query in EVERYTHING]


def use_everywhere(bench: Workbench, emails: list[Row]) -> None:
    """Report, lengthen, return and begin under a token that holds nothing."""
    before = snapshot(bench)
    for outcome in OUTCOMES:
        told = bench.finish(emails, outcome, message="too late", retry_after=1e12)
        assert [(row["status"], row["refused"]) for row in told] == [(None, "MG030")] * 3, outcome
        assert snapshot(bench) == before, outcome
    token, email_ids = emails[0]["lease_token"], [email["id"] for email in emails]
    for name, call in CALLS.items():
        assert bench.rows(call, token, email_ids) == [], name
        assert snapshot(bench) == before, name


@pytest.mark.parametrize("since", SINCE)
def test_a_stale_token_changes_nothing(
    bench: Workbench, stale: list[Row], since: Callable[[Workbench], None]
) -> None:
    since(bench)
    use_everywhere(bench, stale)


def test_the_same_worker_claims_again_under_another_token(
    bench: Workbench, stale: list[Row]
) -> None:
    again = bench.claim(worker="thought dead")
    assert {row["lease_token"] for row in again}.isdisjoint(row["lease_token"] for row in stale)
    use_everywhere(bench, stale)


def test_a_token_that_never_was_changes_nothing(bench: Workbench, stale: list[Row]) -> None:
    bench.claim()
    use_everywhere(bench, [{**row, "lease_token": uuid4()} for row in stale])


def test_a_token_holds_only_the_emails_of_its_claim(bench: Workbench) -> None:
    bench.put(count=3)
    token = bench.claim(3)[0]["lease_token"]
    bench.put(count=3)
    others = bench.claim(3)
    use_everywhere(bench, [{**row, "lease_token": token} for row in others])


def test_of_a_mixed_report_only_the_held_count(bench: Workbench, stale: list[Row]) -> None:
    bench.put(count=2, priority=1)
    fresh = bench.claim(2, worker="another")
    told = bench.finish([*stale, *fresh], "sent")
    assert {row["id"] for row in told if row["refused"] == "MG030"} == ids(stale)
    assert {row["id"] for row in told if row["status"] == "sent"} == ids(fresh)
    assert bench.ask("SELECT count(*) FROM email_queue WHERE status = 'sent'") == 2


def test_of_two_reports_on_one_email_the_stale_one_is_refused(
    bench: Workbench, stale: list[Row]
) -> None:
    fresh = bench.claim(1)
    told = bench.finish([*fresh, *(row for row in stale if row["id"] in ids(fresh))], "sent")
    assert [row["refused"] for row in told].count("MG030") == 1
