"""An email whose earlier try may have arrived is repeated as it was, or not at all."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from claim.workbench import ids
from mailgres.testing import freeze, travel

if TYPE_CHECKING:
    from claim.workbench import Row, Workbench

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
def _two_providers(bench: Workbench) -> None:
    freeze(bench.connection)
    bench.add_provider("with-keys", idempotent=True)
    bench.add_provider("without-keys")
    bench.add_route("default", "with-keys", "without-keys")


def close(bench: Workbench, provider: str, *, circuit: str = "open") -> None:
    bench.do("UPDATE mailgres.providers SET circuit = %s WHERE name = %s", circuit, provider)


def fail_uncertainly(bench: Workbench, provider: str) -> Row:
    """Make a try at a provider of which nobody knows whether it arrived."""
    bench.put(template_type="signup_confirmation", generation=2, retry_policy="stepped")
    [claimed] = bench.claim(providers=[provider])
    assert claimed["provider"] == provider
    bench.do("SELECT mailgres.start_attempts(%s, %s)", claimed["lease_token"], [claimed["id"]])
    [told] = bench.finish([claimed], "ambiguous", message="timed out")
    assert told["status"] == "pending"
    return bench.email(claimed["id"])


def fixed(email: Row) -> list[object]:
    return [email[column] for column in FIXED]


@pytest.mark.parametrize("provider", ["with-keys", "without-keys"])
def test_it_is_repeated_only_by_its_own_provider(bench: Workbench, provider: str) -> None:
    uncertain = fail_uncertainly(bench, provider)
    close(bench, provider)
    travel(bench.connection, MINUTE)
    other = bench.put()
    assert ids(bench.claim()) == set(other)  # the route is open, by way of the other provider
    left = bench.email(uncertain["id"])
    assert (left["status"], fixed(left)) == ("pending", fixed(uncertain))

    close(bench, provider, circuit="closed")
    travel(bench.connection, MINUTE)
    # The other one lost its lease meanwhile, and is claimed alone.
    again = {row["id"]: row for _ in range(2) for row in bench.claim()}[uncertain["id"]]
    assert fixed(again) == fixed(uncertain)


@pytest.mark.parametrize("provider", ["with-keys", "without-keys"])
def test_a_lost_lease_leaves_it_as_uncertain(bench: Workbench, provider: str) -> None:
    uncertain = fail_uncertainly(bench, provider)
    for _ in range(3):
        travel(bench.connection, 2 * MINUTE)
        [again] = bench.claim()
        assert fixed(again) == fixed(uncertain)
        travel(bench.connection, 2 * MINUTE)
        assert bench.ask("SELECT mailgres.reap()") == 1


def test_a_worker_that_died_during_a_call_with_a_key_leaves_it_uncertain(bench: Workbench) -> None:
    [email] = bench.put()
    [first] = bench.claim(providers=["with-keys"])
    travel(bench.connection, 2 * MINUTE)
    bench.ask("SELECT mailgres.reap()")
    assert bench.email(email)["uncertain_since"] == first["leased_at"]
    close(bench, "with-keys")
    assert bench.claim() == []
    assert bench.claim(tokenless=True) == []
    close(bench, "with-keys", circuit="closed")
    travel(bench.connection, MINUTE)
    [again] = bench.claim()
    assert (again["provider"], again["generation"]) == ("with-keys", first["generation"])


def test_within_the_window_of_its_key_it_is_repeated(bench: Workbench) -> None:
    uncertain = fail_uncertainly(bench, "with-keys")
    travel(bench.connection, WINDOW - timedelta(microseconds=1))
    assert ids(bench.claim()) == {uncertain["id"]}


def test_after_the_window_of_its_key_a_person_decides(bench: Workbench) -> None:
    uncertain = fail_uncertainly(bench, "with-keys")
    travel(bench.connection, WINDOW)
    other = bench.put()
    assert ids(bench.claim()) == set(other)
    dead = bench.email(uncertain["id"])
    assert (dead["status"], dead["dead_reason"]) == ("failed", "uncertain")
    assert "timed out" in dead["error_message"]
    assert fixed(dead) == fixed(uncertain)


def test_the_window_counts_also_while_the_provider_is_closed(bench: Workbench) -> None:
    uncertain = fail_uncertainly(bench, "with-keys")
    close(bench, "with-keys")
    travel(bench.connection, WINDOW)
    assert bench.claim() == []
    assert bench.email(uncertain["id"])["dead_reason"] == "uncertain"


def test_expired_it_is_called_uncertain(bench: Workbench) -> None:
    uncertain = fail_uncertainly(bench, "with-keys")
    bench.do("UPDATE email_queue SET expires_at = mailgres.now() + interval '2 minutes'")
    travel(bench.connection, 2 * MINUTE)
    assert bench.claim() == []
    assert bench.email(uncertain["id"])["dead_reason"] == "uncertain"


def test_a_worker_that_cannot_repeat_it_leaves_it_to_one_that_can(bench: Workbench) -> None:
    uncertain = fail_uncertainly(bench, "with-keys")
    travel(bench.connection, MINUTE)
    assert bench.claim(providers=["without-keys"]) == []
    assert ids(bench.claim(providers=["with-keys"])) == {uncertain["id"]}


@pytest.mark.parametrize(
    ("provider", "first", "begun"),
    [("with-keys", "without-keys", True), ("without-keys", "with-keys", False)],
)
def test_whether_its_call_has_begun_follows_from_its_own_provider(
    bench: Workbench, provider: str, first: str, *, begun: bool
) -> None:
    fail_uncertainly(bench, provider)
    bench.add_route("default", first, provider)
    travel(bench.connection, MINUTE)
    [again] = bench.claim()
    assert again["provider"] == provider
    assert (again["begun_at"] is not None) == begun


def test_suppressed_since_it_is_settled_and_not_put_off_for_ever(bench: Workbench) -> None:
    uncertain = fail_uncertainly(bench, "without-keys")
    bench.do("INSERT INTO email_suppressions VALUES ('someone@example.com', '*', 'bounced')")
    travel(bench.connection, timedelta(days=30))
    assert bench.claim() == []
    assert bench.email(uncertain["id"])["status"] in {"failed", "cancelled"}
