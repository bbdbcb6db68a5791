"""Events of providers in a database that is dumped, and what holds of them after a restore."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from support.queue import Queue

DELIVERED, BOUNCED = "delivered@example.com", "bounced@example.com"
LATER = "msg-later"
"""The provider's id of an email whose event is recorded before the email is sent."""
EVENTS: dict[str, dict[str, Any]] = {
    "recorded": {"event": "delivered", "provider_message_id": f"msg-{DELIVERED}", "event_id": "1"},
    "suppressing": {
        "event": "bounced",
        "provider_message_id": f"msg-{BOUNCED}",
        "event_id": "2",
        "detail": {"kind": "hard", "reason": "mailbox_unknown"},
    },
    "unmatched": {"event": "delivered", "provider_message_id": LATER, "event_id": "3"},
    "after the dump": {
        "event": "opened",
        "provider_message_id": f"msg-{DELIVERED}",
        "event_id": "4",
    },
}
PROVIDER = "SELECT provider FROM mailgres.route_providers WHERE route = 'default'"
STATES = """
    SELECT recipient_email::text, state FROM email_queue
    JOIN email_deliveries USING (id) WHERE state IS NOT NULL ORDER BY 1
"""
DUE = "UPDATE mailgres.unmatched_events SET next_lookup_at = mailgres.now()"
COUNTED = """
    SELECT sum(delivered) AS delivered, sum(bounced) AS bounced FROM mailgres.counted_by_event
    WHERE dimension = 'template'
"""


def record(queue: Queue, name: str) -> str:
    """Record an event as a webhook does; the word that it is answered with."""
    event = EVENTS[name] | {"provider": queue.value(PROVIDER)}
    word: str = queue.value("SELECT record_email_events(%s)", Jsonb([event]))
    return word


def populate(queue: Queue) -> None:
    """Two emails with events, of which one suppresses its address, and an event without email."""
    for recipient in (DELIVERED, BOUNCED):
        queue.enqueue(recipient_email=recipient)
        queue.attempt("sent", provider_message_id=f"msg-{recipient}")
    words = [record(queue, name) for name in ("recorded", "suppressing", "unmatched")]
    assert words == ["recorded", "recorded", "unmatched"]


def check(queue: Queue) -> None:
    """What was recorded is known, and events that are repeated or come later are recorded once."""
    words = [record(queue, name) for name in EVENTS]
    assert words == ["duplicate", "duplicate", "duplicate", "recorded"]
    assert record(queue, "after the dump") == "duplicate"
    states = [(BOUNCED, "bounced"), (DELIVERED, "delivered")]
    assert queue.rows(STATES) == states
    suppressed = "SELECT recipient_email, reason, source FROM email_suppressions"
    assert queue.rows(suppressed) == [(BOUNCED, "bounced", "event")]

    expected = queue.enqueue(recipient_email="later@example.com")
    queue.attempt("sent", provider_message_id=LATER)
    queue.run(DUE)
    queue.run("SELECT mailgres.match_email_events()")
    assert queue.value("SELECT state FROM email_deliveries WHERE id = %s", expected) == "delivered"
    assert queue.value("SELECT count(*) FROM mailgres.unmatched_events") == 0
    queue.run("SELECT mailgres.fold_rollups()")
    assert queue.rows(COUNTED) == [(2, 1)]
