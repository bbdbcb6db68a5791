"""The doctor sees that nobody works the queue, and what is stuck in it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from doctor.harness import DoctorHarness
from mailgres import __version__
from mailgres.testing import travel
from support.program import Program

ENQUEUE = """SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com',
    '{"name": "Ana", "product": "Acme"}')"""
HEARTBEAT = "SELECT mailgres.heartbeat('worker-1', %s)"


def pass_time(harness: DoctorHarness, **span: int) -> None:
    travel(harness.conn, timedelta(**span))


# --- is it worked?


def test_doctor_only_notes_a_missing_worker_while_nothing_waits(harness: DoctorHarness) -> None:
    found = harness.finding("scheduler")
    assert (found.severity, found.fix) == ("info", "mailgres worker")


def test_doctor_reports_a_late_email_while_no_worker_runs(harness: DoctorHarness) -> None:
    harness.run(ENQUEUE)
    assert harness.finding("scheduler").severity == "info"
    pass_time(harness, minutes=20)
    found = harness.finding("scheduler")
    assert found.severity == "error"
    assert found.message.endswith(
        "1 email is late, the oldest on the route default of the tenant default by 20 min"
    )


def test_doctor_is_content_while_a_worker_lives(harness: DoctorHarness) -> None:
    harness.run(HEARTBEAT, __version__)
    assert harness.findings("scheduler") == []
    harness.run(ENQUEUE)
    pass_time(harness, minutes=20)
    assert harness.finding("scheduler").severity == "error", "it was not seen for 20 minutes"
    harness.run(HEARTBEAT, __version__)
    found = harness.finding("scheduler")
    assert found.severity == "warning"
    assert found.message.startswith("workers are alive, but 1 email is late")


def test_doctor_notes_a_worker_of_another_version(harness: DoctorHarness) -> None:
    harness.run(HEARTBEAT, "0.0.9")
    found = harness.finding("scheduler")
    assert found.severity == "warning"
    assert "runs mailgres 0.0.9" in found.message


def test_doctor_accepts_runs_of_process_instead_of_a_worker(harness: DoctorHarness) -> None:
    harness.run(ENQUEUE)
    done = Program(harness.url).run("process", "--until-empty")
    assert done.returncode == 0, done.stderr
    assert harness.findings("scheduler") == []


FOR_ACME = "SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', p_tenant_id => 'acme')"


def test_doctor_only_warns_of_waiting_emails_while_others_are_sent(harness: DoctorHarness) -> None:
    """`process` and `serve` have no heartbeat; a paused tenant's mail says nothing of them."""
    harness.run("INSERT INTO mailgres.tenants (tenant_id, paused_at) VALUES ('acme', now())")
    harness.run(FOR_ACME)
    pass_time(harness, minutes=20)
    harness.run(ENQUEUE)
    assert Program(harness.url).run("process", "--until-empty").returncode == 0
    found = harness.finding("scheduler")
    assert found.severity == "warning"
    assert found.message == (
        "emails are processed, but 1 email is late,"
        " the oldest on the route default of the tenant acme by 20 min"
    )
    pass_time(harness, minutes=40)
    assert harness.finding("scheduler").severity == "warning", "there is nothing else to process"
    harness.run("UPDATE mailgres.tenants SET paused_at = NULL")
    assert harness.finding("scheduler").severity == "error"


@pytest.mark.parametrize(
    "held",
    [
        (
            "UPDATE mailgres.providers SET limited_until = now() + interval '9 h', limited_by ="
            " 'quota'"
        ),
        "SELECT mailgres.pause_route('default')",
    ],
)
def test_doctor_ignores_emails_that_may_not_be_sent_yet(harness: DoctorHarness, held: str) -> None:
    harness.run(ENQUEUE)
    pass_time(harness, minutes=20)
    assert harness.finding("scheduler").severity == "error"
    harness.run(held)
    found = harness.finding("scheduler")
    assert found.severity == "warning"
    assert found.message.endswith("no late email may be sent now")


# --- what is stuck


def test_doctor_reports_emails_that_a_dead_worker_holds(harness: DoctorHarness) -> None:
    harness.run(ENQUEUE)
    harness.run("SELECT mailgres.claim('gone', 1)")
    assert harness.findings("stuck-emails") == []
    pass_time(harness, hours=1)
    found = harness.fixed("stuck-emails")
    assert found.severity == "error"
    assert found.message.startswith("1 email is leased by workers that are gone")


def test_doctor_reports_due_emails_that_are_not_ready(harness: DoctorHarness) -> None:
    harness.run(ENQUEUE)
    harness.run(
        "UPDATE email_queue SET ready = false, next_retry_at = mailgres.now() + interval '1 min'"
    )
    assert harness.findings("stuck-emails") == []
    pass_time(harness, hours=1)
    found = harness.fixed("stuck-emails")
    assert found.message == "1 email is due, but not ready to be claimed"


@pytest.mark.parametrize("when", ["now() + interval '3 years'", "'infinity'"])
def test_doctor_warns_of_emails_that_are_never_due(harness: DoctorHarness, when: str) -> None:
    harness.run(ENQUEUE)
    harness.run(f"UPDATE email_queue SET ready = false, next_retry_at = {when}")
    found = harness.fixed("stuck-emails")
    assert found.severity == "warning"
    assert "never due" in found.message


def test_doctor_reports_emails_parked_for_the_configuration_of_their_sender(
    harness: DoctorHarness,
) -> None:
    harness.run(ENQUEUE)
    harness.run(
        """UPDATE email_queue SET ready = false, next_retry_at = now() + interval '10 min',
               parked_since = now(), error_class = 'config', error_code = 'validation_error'"""
    )
    found = harness.finding("stuck-emails")
    assert found.severity == "warning"
    assert found.fix == "mailgres errors explain validation_error"


def test_doctor_reports_emails_on_a_route_without_providers(harness: DoctorHarness) -> None:
    harness.run("SELECT mailgres.set_route('acme', '{capture}')")
    harness.run("SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', p_route => 'acme')")
    assert harness.findings("stuck-emails") == []
    harness.run("SELECT mailgres.pause_route('acme')")
    assert "paused" in harness.fixed("stuck-emails").message


def test_a_route_without_provider_is_never_led_to_where_mail_is_lost(
    harness: DoctorHarness,
) -> None:
    """A captured email counts as sent, but leaves nothing."""
    harness.run("SELECT mailgres.set_route('acme', '{capture}')")
    harness.run("SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', p_route => 'acme')")
    harness.run("DELETE FROM mailgres.route_providers WHERE route = 'acme'")
    harness.run(
        "INSERT INTO mailgres.providers (name, kind, captures) VALUES ('a-file', 'file', true)"
    )
    found = harness.finding("stuck-emails")
    assert (found.severity, found.message) == (
        "error",
        "emails wait on the route acme, which has no provider",
    )
    assert found.fix == "mailgres providers list  # then: mailgres routes set acme <provider>"
    harness.fix(found)
    assert harness.finding("stuck-emails") == found, "it only shows what there is"
    harness.run("INSERT INTO mailgres.providers (name, kind) VALUES ('ours', 'smtp')")
    assert harness.fixed("stuck-emails").fix == "mailgres routes set acme ours"


def test_doctor_reports_emails_of_a_paused_tenant(harness: DoctorHarness) -> None:
    harness.run("INSERT INTO mailgres.tenants (tenant_id, paused_at) VALUES ('it''s', now())")
    assert harness.findings("stuck-emails") == []
    harness.run(
        "SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', p_tenant_id => 'it''s')"
    )
    found = harness.fixed("stuck-emails")
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
def test_doctor_reports_providers_that_are_not_usable(
    harness: DoctorHarness, fault: str, words: str
) -> None:
    # as one that sends: that a route only captures is a finding of its own
    harness.run("UPDATE mailgres.providers SET captures = false WHERE name = 'capture'")
    assert harness.findings("providers") == []
    harness.run(fault)
    assert words in harness.fixed("providers").message


# --- does the upkeep work?

FAILED = "SELECT mailgres.record_janitor_run('fold_rollups', 'worker-1', %s, '5 seconds')"


def test_doctor_reports_a_janitor_after_three_failures(harness: DoctorHarness) -> None:
    for _ in range(2):
        harness.run(FAILED, "division by zero")
    assert harness.findings("janitors") == []
    harness.run(FAILED, "no such function")
    found = harness.finding("janitors")
    assert (found.severity, found.fix) == ("error", "mailgres janitor fold_rollups")
    assert found.message.startswith("fold_rollups failed 3 times in a row, for ")
    assert found.message.endswith(" on the worker worker-1: no such function")
    pass_time(harness, minutes=6)
    assert harness.findings("janitors") == [], "the worker is gone"


def test_doctor_reports_no_janitor_that_succeeded_again(harness: DoctorHarness) -> None:
    for error in ("division by zero", "division by zero", "division by zero", None):
        harness.run(FAILED, error)
    assert harness.findings("janitors") == []
