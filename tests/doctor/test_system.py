"""The doctor judges the system, not the shell that it was started from."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb

from doctor.harness import DoctorHarness, login
from mailgres.doctor import Finding, examine
from mailgres.settings import load
from support.postgres import Server
from support.program import Program

SMTP = {"name": "smtp", "kind": "smtp", "idempotent": False, "batch_size": 1}
ALIVE = "SELECT mailgres.heartbeat('w', '', %s, %s)"


@pytest.fixture
def sending(harness: DoctorHarness) -> DoctorHarness:
    """A queue whose route leads to SMTP."""
    harness.run("SELECT mailgres.use_providers(%s)", Jsonb([SMTP]))
    return harness


def examined(url: str, **variables: str) -> list[Finding]:
    """Return the findings in a shell with these variables, without any network call."""
    env = {"DATABASE_URL": url} | {f"MAILGRES_{k.upper()}": v for k, v in variables.items()}
    return list(examine(load(env), offline=True))


def errors(found: list[Finding]) -> list[str]:
    return [f"{one.check}: {one.message}" for one in found if one.severity == "error"]


def test_a_route_to_a_provider_that_no_live_worker_has_is_an_error(sending: DoctorHarness) -> None:
    sending.run(ALIVE, Jsonb({}), ["resend"])
    said = "providers: no live worker has smtp, a provider of the route default"
    assert errors(examined(sending.url)) == [said]
    sending.run(ALIVE, Jsonb({}), ["smtp"])
    assert errors(examined(sending.url)) == []


def test_a_shell_without_providers_is_not_taken_for_a_worker(sending: DoctorHarness) -> None:
    sending.run(ALIVE, Jsonb({}), ["smtp"])
    found = {one.check: one for one in examined(sending.url, resend_api_key="re_123456789")}
    for check in ("settings", "providers"):
        assert "captured" not in found[check].message
    assert found["settings"].severity == "info"
    assert found["settings"].message.startswith("not checked: these settings name no providers")


def test_a_shell_of_a_worker_that_would_refuse_to_start_is_an_error(sending: DoctorHarness) -> None:
    sending.run(ALIVE, Jsonb({}), ["smtp"])
    shell = {"providers": "resend", "resend_api_key": "re_123456789", "from_email": "a@example.com"}
    (error,) = errors(examined(sending.url, **shell))
    assert error.startswith("providers: a worker with these settings refuses to start")


def test_that_nothing_leaves_is_said_of_the_routes_and_not_of_the_shell(
    harness: DoctorHarness,
) -> None:
    found = harness.finding("providers")
    assert (found.severity, found.message) == (
        "info",
        "the route default sends nothing: its provider is capture",
    )


def test_an_operator_is_not_examined_for_the_rights_of_a_worker(
    sending: DoctorHarness, server: Server
) -> None:
    sending.run(ALIVE, Jsonb({}), ["smtp"])
    with login(sending, server) as operator:
        sending.run(f"GRANT mailgres_operator TO {operator.conn.info.user}")
        found = examined(operator.url)
        assert errors(found) == []
        unchecked = {one.check for one in found if one.message.startswith("not checked: perm")}
        assert unchecked == set(), "an operator sees what an operator needs"
        (lacks,) = [one for one in errors_as_worker(operator) if one.startswith("privileges")]
        assert "cannot process the queue" in lacks


def test_doctor_says_only_permission_denied_to_a_role_without_rights(
    harness: DoctorHarness, server: Server
) -> None:
    with login(harness, server) as stranger:
        found = {one.check: one.message for one in examined(stranger.url)}
        assert "permission denied" in found["schema-version"]
        assert found["grants"] == "not checked: see schema-version"


def errors_as_worker(harness: DoctorHarness) -> list[str]:
    settings = load({"DATABASE_URL": harness.url})
    return errors(list(examine(settings, offline=True, as_worker=True)))


@pytest.mark.usefixtures("sending")
def test_status_names_a_provider_that_no_live_worker_has(
    mailgres: Program, conn: psycopg.Connection
) -> None:
    conn.execute(ALIVE, (Jsonb({}), ["resend"]))
    assert "no live worker has smtp: route default" in mailgres("status")
    conn.execute(ALIVE, (Jsonb({}), ["smtp"]))
    assert "no live worker" not in mailgres("status")
    conn.execute("SELECT mailgres.sign_off('w')")
    assert "none alive" in mailgres("status")
