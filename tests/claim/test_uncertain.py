"""An uncertain email is retried unchanged, or not at all."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from claim.harness import ids
from mailgres.testing import freeze, travel

if TYPE_CHECKING:
    from claim.harness import ClaimHarness, Row

MINUTE = timedelta(minutes=1)
WINDOW = timedelta(hours=23)
FIXED = (
    "provider",
    "generation",
    "first_attempt_at",
    "uncertain_since",
    "template_version",
)


@pytest.fixture(autouse=True)
def _two_providers(harness: ClaimHarness) -> None:
    freeze(harness.connection)
    harness.add_provider("with-keys", idempotent=True)
    harness.add_provider("without-keys")
    harness.add_route("default", "with-keys", "without-keys")


def close(harness: ClaimHarness, provider: str, *, circuit: str = "open") -> None:
    harness.do("UPDATE mailgres.providers SET circuit = %s WHERE name = %s", circuit, provider)


def fail_uncertainly(harness: ClaimHarness, provider: str) -> Row:
    """Make an attempt with an unknown outcome."""
    harness.put(template_type="signup_confirmation", generation=2, retry_policy="stepped")
    [claimed] = harness.claim(providers=[provider])
    assert claimed["provider"] == provider
    harness.do("SELECT mailgres.start_attempts(%s, %s)", claimed["lease_token"], [claimed["id"]])
    [reported] = harness.finish([claimed], "ambiguous", message="timed out")
    assert reported["status"] == "pending"
    return harness.email(claimed["id"])


def fixed(email: Row) -> list[object]:
    return [email[column] for column in FIXED]


@pytest.mark.parametrize("provider", ["with-keys", "without-keys"])
def test_an_uncertain_email_is_retried_only_by_its_provider(
    harness: ClaimHarness, provider: str
) -> None:
    uncertain = fail_uncertainly(harness, provider)
    close(harness, provider)
    travel(harness.connection, MINUTE)
    other = harness.put()
    assert ids(harness.claim()) == set(other)  # the route is open, by way of the other provider
    left = harness.email(uncertain["id"])
    assert (left["status"], fixed(left)) == ("pending", fixed(uncertain))

    close(harness, provider, circuit="closed")
    travel(harness.connection, MINUTE)
    # The other one lost its lease meanwhile, and is claimed alone.
    again = {row["id"]: row for _ in range(2) for row in harness.claim()}[uncertain["id"]]
    assert fixed(again) == fixed(uncertain)


@pytest.mark.parametrize("provider", ["with-keys", "without-keys"])
def test_a_lost_lease_leaves_an_email_uncertain(harness: ClaimHarness, provider: str) -> None:
    uncertain = fail_uncertainly(harness, provider)
    for _ in range(3):
        travel(harness.connection, 2 * MINUTE)
        [again] = harness.claim()
        assert fixed(again) == fixed(uncertain)
        travel(harness.connection, 2 * MINUTE)
        assert harness.ask("SELECT mailgres.reap()") == 1


def test_a_worker_that_died_during_a_call_with_a_key_leaves_it_uncertain(
    harness: ClaimHarness,
) -> None:
    [email] = harness.put()
    [first] = harness.claim(providers=["with-keys"])
    travel(harness.connection, 2 * MINUTE)
    harness.ask("SELECT mailgres.reap()")
    assert harness.email(email)["uncertain_since"] == first["leased_at"]
    close(harness, "with-keys")
    assert harness.claim() == []
    assert harness.claim(tokenless=True) == []
    close(harness, "with-keys", circuit="closed")
    travel(harness.connection, MINUTE)
    [again] = harness.claim()
    assert (again["provider"], again["generation"]) == ("with-keys", first["generation"])


def test_an_uncertain_email_is_retried_within_its_key_window(harness: ClaimHarness) -> None:
    uncertain = fail_uncertainly(harness, "with-keys")
    travel(harness.connection, WINDOW - timedelta(microseconds=1))
    assert ids(harness.claim()) == {uncertain["id"]}


def test_after_the_window_of_its_key_a_person_decides(harness: ClaimHarness) -> None:
    uncertain = fail_uncertainly(harness, "with-keys")
    travel(harness.connection, WINDOW)
    other = harness.put()
    assert ids(harness.claim()) == set(other)
    dead = harness.email(uncertain["id"])
    assert (dead["status"], dead["dead_reason"]) == ("failed", "uncertain")
    assert "timed out" in dead["error_message"]
    assert fixed(dead) == fixed(uncertain)


def test_the_window_counts_also_while_the_provider_is_closed(harness: ClaimHarness) -> None:
    uncertain = fail_uncertainly(harness, "with-keys")
    close(harness, "with-keys")
    travel(harness.connection, WINDOW)
    assert harness.claim() == []
    assert harness.email(uncertain["id"])["dead_reason"] == "uncertain"


def test_an_uncertain_email_that_expires_dies_as_uncertain(harness: ClaimHarness) -> None:
    uncertain = fail_uncertainly(harness, "with-keys")
    harness.do("UPDATE email_queue SET expires_at = mailgres.now() + interval '2 minutes'")
    travel(harness.connection, 2 * MINUTE)
    assert harness.claim() == []
    assert harness.email(uncertain["id"])["dead_reason"] == "uncertain"


def test_a_worker_that_cannot_repeat_it_leaves_it_to_one_that_can(harness: ClaimHarness) -> None:
    uncertain = fail_uncertainly(harness, "with-keys")
    travel(harness.connection, MINUTE)
    assert harness.claim(providers=["without-keys"]) == []
    assert ids(harness.claim(providers=["with-keys"])) == {uncertain["id"]}


@pytest.mark.parametrize(
    ("provider", "first", "started"),
    [("with-keys", "without-keys", True), ("without-keys", "with-keys", False)],
)
def test_whether_its_call_has_begun_follows_from_its_own_provider(
    harness: ClaimHarness, provider: str, first: str, *, started: bool
) -> None:
    fail_uncertainly(harness, provider)
    harness.add_route("default", first, provider)
    travel(harness.connection, MINUTE)
    [again] = harness.claim()
    assert again["provider"] == provider
    assert (again["attempt_started_at"] is not None) == started


def test_an_uncertain_email_that_is_suppressed_meanwhile_is_settled(harness: ClaimHarness) -> None:
    uncertain = fail_uncertainly(harness, "without-keys")
    harness.do("INSERT INTO email_suppressions VALUES ('someone@example.com', '*', 'bounced')")
    travel(harness.connection, timedelta(days=30))
    assert harness.claim() == []
    assert harness.email(uncertain["id"])["status"] in {"failed", "cancelled"}
