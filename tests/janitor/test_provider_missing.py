"""A route that leads to a provider which no live worker has is an alert."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb

from janitor.notifier import MINUTE
from support.queue import Clock, Queue

SECOND = timedelta(seconds=1)
ALERTS = "SELECT subject FROM email_alerts WHERE rule = 'provider_missing'"
MISSING = "SELECT provider, routes FROM mailgres.missing_providers()"


class Fleet:
    """Workers that say what they have, and a clock."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self.queue = queue
        self.clock = clock

    def seen(self, name: str, *providers: str, on_demand: bool = False) -> None:
        beat = "SELECT mailgres.heartbeat(%s, '1', '{}', %s, %s)"
        self.queue.run(beat, name, list(providers), on_demand)

    def missing(self) -> list[str]:
        return [row.provider for row in self.queue.rows(MISSING)]

    def alerts(self) -> list[str]:
        return [row.subject for row in self.queue.rows(ALERTS)]

    def wait(self, length: timedelta, **living: str) -> None:
        """Let time pass, in which these workers live: by name, with the provider each has."""
        end = length
        while end > timedelta():
            step = min(end, 10 * SECOND)
            self.clock.forward(step)
            end -= step
            for name, provider in living.items():
                self.seen(name, provider)


@pytest.fixture
def fleet(queue: Queue, clock: Clock) -> Fleet:
    """The default route leads to SMTP; Resend stands beside."""
    for name in ("resend", "smtp"):
        provider = {"name": name, "kind": name, "idempotent": False, "batch_size": 1}
        queue.run("SELECT mailgres.use_providers(%s)", Jsonb([provider]))
    queue.run("SELECT mailgres.set_route('default', '{smtp}')")
    return Fleet(queue, clock)


def test_provider_missing_fires_after_five_minutes(fleet: Fleet) -> None:
    fleet.seen("old", "smtp")
    fleet.seen("new", "resend")
    assert fleet.missing() == []
    fleet.wait(2 * MINUTE, new="resend")
    assert [(row.provider, row.routes) for row in fleet.queue.rows(MISSING)] == [
        ("smtp", ["default"])
    ]
    assert fleet.alerts() == []
    fleet.wait(4 * MINUTE, new="resend")
    assert fleet.alerts() == ["smtp"]
    fleet.seen("old", "smtp")
    assert (fleet.missing(), fleet.alerts()) == ([], [])


def test_provider_missing_ignores_a_brief_restart(fleet: Fleet) -> None:
    fleet.seen("old", "smtp")
    fleet.seen("new", "resend")
    fleet.queue.run("SELECT mailgres.sign_off('old')")
    fleet.wait(50 * SECOND, new="resend")
    assert (fleet.missing(), fleet.alerts()) == ([], [])


def test_a_provider_that_nobody_ever_had_is_missing_for_as_long_as_workers_live(
    fleet: Fleet,
) -> None:
    fleet.seen("new", "resend")
    fleet.wait(6 * MINUTE, new="resend")
    assert fleet.alerts() == ["smtp"]


def test_runs_of_cron_have_their_providers_for_a_quarter_of_an_hour(fleet: Fleet) -> None:
    fleet.seen("new", "resend")
    fleet.seen("cron", "smtp", on_demand=True)
    fleet.queue.run("SELECT mailgres.sign_off('cron')")
    fleet.wait(14 * MINUTE, new="resend")
    assert fleet.missing() == []
    fleet.wait(2 * MINUTE, new="resend")
    assert (fleet.missing(), fleet.alerts()) == (["smtp"], ["smtp"])


def test_provider_missing_does_not_fire_without_any_worker(fleet: Fleet) -> None:
    """The rule no_processor is for that."""
    assert fleet.missing() == []
    fleet.seen("old", "smtp")
    fleet.wait(20 * MINUTE)
    assert (fleet.missing(), fleet.alerts()) == ([], [])


def test_a_worker_of_a_version_that_does_not_say_may_have_any(fleet: Fleet) -> None:
    fleet.queue.run("SELECT mailgres.heartbeat('older', '0')")
    assert fleet.missing() == []
