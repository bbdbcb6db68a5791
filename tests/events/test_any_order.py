"""The events of an email give one state, whatever their order and however many copies come."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from support.queue import RECIPIENT, WITH_KEYS, WITHOUT_KEYS, Clock, Queue

KINDS = ("hard", "soft", "undetermined")
REASONS = ("mailbox_unknown", "mailbox_full", "content", "other")
PLAIN = ("sent", "delivered", "delayed", "complained", "opened", "clicked", "suppressed")
MORE = ("unsubscribed", "rejected", "autoresponded")

RECORD = """
    SELECT record_email_event(
        NULL, %(event)s, p_queue_id => %(queue_id)s, p_event_id => %(id)s,
        p_occurred_at => mailgres.now() - make_interval(mins => %(age)s), p_detail => %(detail)s)
"""
STATE = """
    SELECT to_jsonb(d) - '{seen_before,delivered_before,made_dead}'::text[] AS delivery,
           to_jsonb(q) AS email,
           (SELECT jsonb_agg(to_jsonb(s) - '{detail}'::text[] ORDER BY s.tenant_id)
            FROM email_suppressions s) AS suppressed,
           (SELECT jsonb_agg(e ORDER BY e.event_id)
            FROM (SELECT event_id, event, kind, reason, recipient_email, occurred_at
                  FROM email_events WHERE queue_id = q.id) e) AS events,
           (SELECT jsonb_agg(c ORDER BY c.dimension, c.name)
            FROM (SELECT dimension, name, sum(reported) AS reported, sum(delivered) AS delivered,
                         sum(bounced) AS bounced, sum(hard_bounced) AS hard_bounced,
                         sum(complained) AS complained, sum(opened) AS opened,
                         sum(refused) AS refused, sum(seconds) AS seconds
                  FROM mailgres.counted_by_event GROUP BY 1, 2) c) AS counted
    FROM email_queue q LEFT JOIN mailgres.deliveries d ON d.queue_id = q.id
"""


def event(name: str, kind: str | None = None, reason: str | None = None) -> dict[str, Any]:
    detail = {"kind": kind, "reason": reason, "text": f"{name} {reason}"}
    return {"event": name, "detail": {key: value for key, value in detail.items() if value}}


EVENTS = st.one_of(
    st.sampled_from(PLAIN + MORE).map(event),
    st.builds(event, st.just("bounced"), st.sampled_from(KINDS), st.sampled_from(REASONS)),
    st.builds(event, st.just("failed"), st.none(), st.sampled_from(("quota", "other"))),
)
HISTORIES = st.lists(st.tuples(EVENTS, st.integers(0, 5)), min_size=1, max_size=5).map(
    lambda found: [
        {**each, "age": age, "id": f"event {place}"} for place, (each, age) in enumerate(found)
    ]
)
"""Sets of events: what happened, and when."""


def sent(queue: Queue) -> UUID:
    queue.use_provider(WITH_KEYS)
    queue_id = queue.enqueue()
    queue.attempt("sent", provider_message_id="re_1")
    return queue_id


def uncertain(queue: Queue) -> UUID:
    queue.use_provider(WITHOUT_KEYS)
    queue_id = queue.enqueue()
    assert queue.attempt("ambiguous", message="timed out").dead_reason == "uncertain"
    return queue_id


STARTS: dict[str, Callable[[Queue], UUID]] = {"sent": sent, "uncertain": uncertain}


def record(queue: Queue, queue_id: UUID, one: dict[str, Any]) -> str:
    given_ = {**one, "queue_id": queue_id, "detail": Jsonb(one["detail"])}
    row = queue.conn.execute(RECORD, given_).fetchone()
    assert row is not None
    return str(row[0])


def state_after(queue: Queue, queue_id: UUID, events: list[dict[str, Any]]) -> Any:
    with queue.conn.transaction(force_rollback=True):
        for one in events:
            record(queue, queue_id, one)
        return queue.row(STATE)


@pytest.mark.parametrize("start", STARTS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), events=HISTORIES)
def test_every_order_and_any_number_of_copies_give_the_same_state(
    queue: Queue, clock: Clock, start: str, data: st.DataObject, events: list[dict[str, Any]]
) -> None:
    with queue.conn.transaction(force_rollback=True):
        queue_id = STARTS[start](queue)
        clock.forward(timedelta(hours=1))
        once = state_after(queue, queue_id, events)
        copies = [one for one in events for _ in range(data.draw(st.integers(1, 4)))]
        shuffled = data.draw(st.permutations(copies))
        assert state_after(queue, queue_id, shuffled) == once
        together = [{**one, "queue_id": str(queue_id), "event_id": one["id"]} for one in shuffled]
        assert state_together(queue, together) == once


def state_together(queue: Queue, events: list[dict[str, Any]]) -> Any:
    """Record the events with one call."""
    now = queue.value("SELECT mailgres.now()")
    calls = [
        {
            "event": one["event"],
            "queue_id": one["queue_id"],
            "event_id": one["event_id"],
            "occurred_at": (now - timedelta(minutes=one["age"])).isoformat(),
            "detail": one["detail"],
        }
        for one in events
    ]
    with queue.conn.transaction(force_rollback=True):
        words = [row[0] for row in queue.rows("SELECT record_email_events(%s)", Jsonb(calls))]
        assert words.count("recorded") == len({one["event_id"] for one in events})
        assert set(words) <= {"recorded", "duplicate"}
        return queue.row(STATE)


def test_forty_six_copies_of_an_event_are_stored_once(queue: Queue) -> None:
    queue_id = sent(queue)
    one = {**event("bounced", "hard", "mailbox_unknown"), "age": 0, "id": "svix-1"}
    words = [record(queue, queue_id, one) for _ in range(46)]
    assert words == ["recorded", *["duplicate"] * 45]
    assert queue.value("SELECT count(*) FROM email_events") == 1
    assert queue.value("SELECT sum(bounced) FROM mailgres.event_deltas") == 1
    assert queue.value("SELECT recipient_email FROM email_suppressions") == RECIPIENT


def test_two_providers_may_use_the_same_event_id(queue: Queue) -> None:
    queue_id = sent(queue)
    queue.run("UPDATE email_queue SET provider = NULL")
    statement = "SELECT record_email_event(%s, 'opened', p_queue_id => %s, p_event_id => '1')"
    words = [queue.value(statement, provider, queue_id) for provider in ("a", "b", "a")]
    assert words == ["recorded", "recorded", "duplicate"]


RANKS = [
    *("sent", "delayed", "failed", "rejected", "suppressed"),
    *("delivered", "bounced", "complained"),
]


@pytest.mark.parametrize("place", range(len(RANKS)))
def test_the_state_of_an_email_is_that_of_its_strongest_event(queue: Queue, place: int) -> None:
    queue_id = sent(queue)
    for name in RANKS[place:] + RANKS[:place]:
        record(queue, queue_id, {**event(name), "age": 0, "id": name})
    assert queue.value("SELECT state FROM mailgres.deliveries") == "complained"
    queue.run("DELETE FROM mailgres.deliveries")
    queue.run("DELETE FROM email_events")
    for name in reversed(RANKS[: place + 1]):
        record(queue, queue_id, {**event(name), "age": 0, "id": name})
    assert queue.value("SELECT state FROM mailgres.deliveries") == RANKS[place]
