"""The doctor sees that nobody works the queue, and what is stuck in it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from doctor.clinic import Clinic
from mailgres import __version__
from mailgres.testing import travel
from support.program import Program

ENQUEUE = """SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com',
    '{"name": "Ana", "product": "Acme"}')"""
HEARTBEAT = "SELECT mailgres.heartbeat('worker-1', %s)"


def pass_time(clinic: Clinic, **span: int) -> None:
    travel(clinic.conn, timedelta(**span))


# --- is it worked?


def test_nobody_works_and_nothing_waits(clinic: Clinic) -> None:
    found = clinic.finding("scheduler")
    assert (found.severity, found.fix) == ("info", "mailgres worker")


def test_nobody_works_and_an_email_is_late(clinic: Clinic) -> None:
    clinic.run(ENQUEUE)
    assert clinic.finding("scheduler").severity == "info"
    pass_time(clinic, minutes=20)
    found = clinic.finding("scheduler")
    assert found.severity == "error"
    assert found.message.endswith(
        "1 email is late, the oldest on the route default of the tenant default by 20 min"
    )


def test_a_worker_lives(clinic: Clinic) -> None:
    clinic.run(HEARTBEAT, __version__)
    assert clinic.findings("scheduler") == []
    clinic.run(ENQUEUE)
    pass_time(clinic, minutes=20)
    assert clinic.finding("scheduler").severity == "error", "it was not heard of for 20 minutes"
    clinic.run(HEARTBEAT, __version__)
    found = clinic.finding("scheduler")
    assert found.severity == "warning"
    assert found.message.startswith("workers live, but 1 email is late")


def test_a_worker_of_another_version(clinic: Clinic) -> None:
    clinic.run(HEARTBEAT, "0.0.9")
    found = clinic.finding("scheduler")
    assert found.severity == "warning"
    assert "runs mailgres 0.0.9" in found.message


def test_runs_now_and_then_are_enough(clinic: Clinic) -> None:
    clinic.run(ENQUEUE)
    done = Program(clinic.url).run("process", "--until-empty")
    assert done.returncode == 0, done.stderr
    assert clinic.findings("scheduler") == []


FOR_ACME = "SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', p_tenant_id => 'acme')"


def test_while_mail_flows_what_waits_is_a_warning(clinic: Clinic) -> None:
    """`process` and `serve` have no heartbeat; a paused tenant's mail says nothing of them."""
    clinic.run("INSERT INTO mailgres.tenants (tenant_id, paused_at) VALUES ('acme', now())")
    clinic.run(FOR_ACME)
    pass_time(clinic, minutes=20)
    clinic.run(ENQUEUE)
    assert Program(clinic.url).run("process", "--until-empty").returncode == 0
    found = clinic.finding("scheduler")
    assert found.severity == "warning"
    assert found.message == (
        "emails are processed, but 1 email is late,"
        " the oldest on the route default of the tenant acme by 20 min"
    )
    pass_time(clinic, minutes=40)
    assert clinic.finding("scheduler").severity == "warning", "there is nothing else to process"
    clinic.run("UPDATE mailgres.tenants SET paused_at = NULL")
    assert clinic.finding("scheduler").severity == "error"


@pytest.mark.parametrize(
    "held",
    [
        "UPDATE mailgres.providers SET waits_until = now() + interval '9 h', waits_for = 'quota'",
        "SELECT mailgres.pause_route('default')",
    ],
)
def test_what_may_not_be_sent_now_accuses_nobody(clinic: Clinic, held: str) -> None:
    clinic.run(ENQUEUE)
    pass_time(clinic, minutes=20)
    assert clinic.finding("scheduler").severity == "error"
    clinic.run(held)
    found = clinic.finding("scheduler")
    assert found.severity == "warning"
    assert found.message.endswith("no late email may be sent now")


# --- what is stuck


def test_held_by_a_worker_that_is_gone(clinic: Clinic) -> None:
    clinic.run(ENQUEUE)
    clinic.run("SELECT mailgres.claim('gone', 1)")
    assert clinic.findings("stuck-emails") == []
    pass_time(clinic, hours=1)
    found = clinic.mended("stuck-emails")
    assert found.severity == "error"
    assert found.message.startswith("1 email is held by workers that are gone")


def test_due_but_not_ready(clinic: Clinic) -> None:
    clinic.run(ENQUEUE)
    clinic.run(
        "UPDATE email_queue SET ready = false, next_retry_at = mailgres.now() + interval '1 min'"
    )
    assert clinic.findings("stuck-emails") == []
    pass_time(clinic, hours=1)
    found = clinic.mended("stuck-emails")
    assert found.message == "1 email is due, but not ready to be claimed"


@pytest.mark.parametrize("when", ["now() + interval '3 years'", "'infinity'"])
def test_never_due(clinic: Clinic, when: str) -> None:
    clinic.run(ENQUEUE)
    clinic.run(f"UPDATE email_queue SET ready = false, next_retry_at = {when}")
    found = clinic.mended("stuck-emails")
    assert found.severity == "warning"
    assert "for ever" in found.message


def test_parked_for_the_senders_set_up(clinic: Clinic) -> None:
    clinic.run(ENQUEUE)
    clinic.run(
        """UPDATE email_queue SET ready = false, next_retry_at = now() + interval '10 min',
               parked_since = now(), error_class = 'config', error_code = 'validation_error'"""
    )
    found = clinic.finding("stuck-emails")
    assert found.severity == "warning"
    assert found.fix == "mailgres errors explain validation_error"


def test_on_a_route_that_leads_nowhere(clinic: Clinic) -> None:
    clinic.run("SELECT mailgres.set_route('acme', '{capture}')")
    clinic.run("SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', p_route => 'acme')")
    assert clinic.findings("stuck-emails") == []
    clinic.run("SELECT mailgres.pause_route('acme')")
    assert "paused" in clinic.mended("stuck-emails").message


def test_a_route_without_provider_is_never_led_to_where_mail_is_lost(clinic: Clinic) -> None:
    """What is captured counts as sent, and never leaves."""
    clinic.run("SELECT mailgres.set_route('acme', '{capture}')")
    clinic.run("SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', p_route => 'acme')")
    clinic.run("DELETE FROM mailgres.route_providers WHERE route = 'acme'")
    clinic.run("INSERT INTO mailgres.providers (name, kind) VALUES ('a-null', 'null')")
    found = clinic.finding("stuck-emails")
    assert (found.severity, found.message) == (
        "error",
        "emails wait on the route acme, which has no provider",
    )
    assert found.fix == "mailgres providers list  # then: mailgres routes set acme <provider>"
    clinic.mend(found)
    assert clinic.finding("stuck-emails") == found, "it only shows what there is"
    clinic.run("INSERT INTO mailgres.providers (name, kind) VALUES ('ours', 'smtp')")
    assert clinic.mended("stuck-emails").fix == "mailgres routes set acme ours"


def test_of_a_tenant_that_is_paused(clinic: Clinic) -> None:
    clinic.run("INSERT INTO mailgres.tenants (tenant_id, paused_at) VALUES ('it''s', now())")
    assert clinic.findings("stuck-emails") == []
    clinic.run(
        "SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', p_tenant_id => 'it''s')"
    )
    found = clinic.mended("stuck-emails")
    assert (found.severity, found.message) == (
        "info",
        "emails of the tenant it's wait: it is paused",
    )


# --- providers


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            """UPDATE mailgres.providers SET circuit = 'open', circuit_until = 'infinity',
                   circuit_reason = 'invalid_api_key' WHERE name = 'capture'""",
            "the circuit of capture is open: invalid_api_key",
        ),
        (
            "SELECT mailgres.pause_provider('capture', now() + interval '1 h', 'moving')",
            "capture is paused: moving",
        ),
        (
            "UPDATE mailgres.providers SET enabled = false WHERE name = 'capture'",
            "capture is disabled",
        ),
    ],
)
def test_providers(clinic: Clinic, fault: str, words: str) -> None:
    # as one that sends: that a route only captures is a finding of its own
    clinic.run("UPDATE mailgres.providers SET kind = 'smtp' WHERE name = 'capture'")
    assert clinic.findings("providers") == []
    clinic.run(fault)
    assert words in clinic.mended("providers").message


# --- does the upkeep work?

FAILED = "SELECT mailgres.note_janitor('rollups', 'worker-1', %s, '5 seconds')"


def test_a_janitor_that_keeps_failing(clinic: Clinic) -> None:
    for _ in range(2):
        clinic.run(FAILED, "division by zero")
    assert clinic.findings("janitors") == []
    clinic.run(FAILED, "no such function")
    found = clinic.finding("janitors")
    assert (found.severity, found.fix) == ("error", "mailgres janitor rollups")
    assert found.message.startswith("rollups failed 3 times in a row, for ")
    assert found.message.endswith(" on the worker worker-1: no such function")
    pass_time(clinic, minutes=6)
    assert clinic.findings("janitors") == [], "the worker is gone"


def test_a_janitor_that_succeeded_again(clinic: Clinic) -> None:
    for error in ("division by zero", "division by zero", "division by zero", None):
        clinic.run(FAILED, error)
    assert clinic.findings("janitors") == []
