"""Whatever happens to the service while it records an event, the event is stored once."""

from __future__ import annotations

import json
from functools import partial
from uuid import UUID

from doubles.resend import ResendDouble
from e2e.harness import E2eHarness
from mailgres.webhooks import samples
from service.harness import read, request, site
from service.webhook_calls import PATH, RESEND, call, headers, recorded, sent
from support.concurrency import at_once
from support.postgres import Connect
from worker.harness import until

WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
SERVICES = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'mailgres'
"""
LOCK = "SELECT FROM email_queue WHERE id = %s FOR UPDATE"


def test_an_event_that_a_killed_service_did_not_commit_is_recorded_when_it_is_repeated(
    harness: E2eHarness, resend: ResendDouble, connect: Connect
) -> None:
    assert resend.url
    with site(harness, resend_webhook_secret=RESEND) as running:
        about = sent(harness, running)
        payload = samples.resend("email.delivered", about)
        body = json.dumps(payload).encode()
        with connect(autocommit=False) as other, running.open() as caller:
            other.execute(LOCK, [UUID(about.queue_id)])
            given = headers(body, name="msg_1")
            running.send(caller, request("POST", PATH, *given, body=body))
            until(lambda: harness.value(WAITING) == 1, "the event is being recorded")
            running.process.kill()
            assert read(caller).status == 0  # no answer
            other.rollback()
        until(lambda: harness.value(SERVICES) == 0, "its sessions have ended")
    assert recorded(harness, about.queue_id) == []
    with site(harness) as running:
        results = [call(running, payload, name="msg_1").json for _ in range(2)]
    assert results == [{"recorded": 1}, {"duplicate": 1}]
    assert [row.event for row in recorded(harness, about.queue_id)] == ["delivered"]


def test_an_event_whose_answer_does_not_arrive_is_recorded_once(
    harness: E2eHarness, resend: ResendDouble, connect: Connect
) -> None:
    """The caller is gone before the commit, and the service is killed after it."""
    assert resend.url
    with site(harness, resend_webhook_secret=RESEND) as running:
        about = sent(harness, running)
        payload = samples.resend("email.delivered", about)
        body = json.dumps(payload).encode()
        with connect(autocommit=False) as other:
            other.execute(LOCK, [UUID(about.queue_id)])
            with running.open() as caller:
                given = headers(body, name="msg_1")
                running.send(caller, request("POST", PATH, *given, body=body))
                until(lambda: harness.value(WAITING) == 1, "the event is being recorded")
            other.rollback()
        until(lambda: recorded(harness, about.queue_id), "it is committed")
        running.process.kill()
    with site(harness) as running:
        assert call(running, payload, name="msg_1").json == {"duplicate": 1}
    assert [row.event for row in recorded(harness, about.queue_id)] == ["delivered"]


def test_two_services_that_get_the_same_event_at_once_record_it_once(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    assert resend.url
    with site(harness, resend_webhook_secret=RESEND) as one, site(harness) as other:
        about = sent(harness, one)
        payload = samples.resend("email.bounced", about)
        calls = [partial(call, to, payload, name="msg_1") for to in (one, other) * 4]
        results = [answer.json for answer in at_once(calls)]
    assert sorted(map(str, results)) == sorted(["{'recorded': 1}", *["{'duplicate': 1}"] * 7])
    assert [row.event for row in recorded(harness, about.queue_id)] == ["bounced"]
    assert harness.value("SELECT count(*) FROM email_suppressions") == 1


SETTINGS = {
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "statement_timeout": "1",
    "row_security": "off",
    "search_path": "pg_temp",
    "standard_conforming_strings": "off",
    "DateStyle": "German",
    "IntervalStyle": "iso_8601",
    "TimeZone": "Asia/Jakarta",
    "bytea_output": "escape",
}
"""Settings that an administrator may have given the role of the service."""


def test_no_setting_of_the_role_keeps_a_webhook_from_recording(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    assert resend.url
    with site(harness, resend_webhook_secret=RESEND) as running:
        about = sent(harness, running)
    given = [f"-c {name}={value}" for name, value in SETTINGS.items()]
    harness.variables["PGOPTIONS"] = " ".join(given)
    with site(harness) as running:
        answer = call(running, samples.resend("email.delivered", about))
        assert (answer.status, answer.json) == (200, {"recorded": 1})
    (row,) = recorded(harness, about.queue_id)
    assert row.occurred_at.isoformat() == about.moment
