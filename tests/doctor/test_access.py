"""The doctor sees workers with more rights than they need, and connections that others can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb

from doctor.harness import DoctorHarness, login
from mailgres import migrate
from mailgres.doctor import access
from mailgres.testing import travel
from mailgres.transport import Transport
from support.cluster import Cluster
from support.postgres import Server
from support.program import Program

ALIVE = "SELECT mailgres.heartbeat(%s)"
CONNECTED = "SELECT mailgres.heartbeat(%s, '', %s)"


@contextmanager
def worker_login(harness: DoctorHarness, server: Server) -> Iterator[DoctorHarness]:
    """A login role that is a member of mailgres_worker and of nothing else."""
    with login(harness, server) as worker:
        harness.run(f"GRANT mailgres_worker TO {worker.conn.info.user}")
        yield worker


# --- the roles of workers


def test_a_worker_that_is_a_superuser_is_found(harness: DoctorHarness) -> None:
    harness.run(ALIVE, "w1")
    found = harness.finding("worker-roles")
    user = harness.conn.info.user
    assert found.severity == "warning"
    assert found.message.startswith(f"the worker w1 connects as {user}, a superuser: ")
    assert "CREATE ROLE mailgres_worker_login LOGIN IN ROLE mailgres_worker" in (found.fix or "")


def test_a_worker_that_is_the_owner_is_found(cluster: Cluster, migrations: Path) -> None:
    with cluster.owner("CREATEROLE") as url:
        migrate.upgrade(url, directory=migrations)
        with psycopg.connect(url, autocommit=True) as conn:
            owner, name = DoctorHarness(url, conn), conn.info.user
            assert owner.findings("worker-roles") == []
            Program(url)("process")
            found = owner.finding("worker-roles")
    assert found.severity == "warning"
    assert f"connects as {name}, which may act as the owner of the schema" in found.message


def test_a_worker_that_may_become_the_owner_is_found(
    harness: DoctorHarness, server: Server
) -> None:
    """It inherits nothing, but SET ROLE is enough."""
    with worker_login(harness, server) as worker:
        worker.run(ALIVE, "w1")
        harness.run(f"ALTER ROLE {worker.conn.info.user} NOINHERIT")
        owner = "(SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'mailgres')"
        harness.run(
            f"DO $$ BEGIN EXECUTE format('GRANT %s TO {worker.conn.info.user}', {owner}); END $$"
        )
        assert "may act as the owner" in harness.finding("worker-roles").message


def test_a_member_of_mailgres_worker_is_in_order(harness: DoctorHarness, server: Server) -> None:
    with worker_login(harness, server) as worker:
        worker.run(ALIVE, "w1")
        assert harness.findings("worker-roles") == []
        assert worker.findings("worker-roles") == [], "it may look by itself"
        assert worker.findings("worker-roles", providers="smtp") == []


def test_set_role_does_not_hide_the_login_role_from_doctor(harness: DoctorHarness) -> None:
    with harness.conn.transaction():
        harness.run("SET LOCAL ROLE mailgres_worker")
        harness.run(ALIVE, "w1")
    assert "a superuser" in harness.finding("worker-roles").message


def test_the_role_of_the_last_heartbeat_counts(harness: DoctorHarness, server: Server) -> None:
    harness.run(ALIVE, "w1")
    with worker_login(harness, server) as worker:
        worker.run(ALIVE, "w1")
        assert harness.findings("worker-roles") == []


def test_workers_with_the_same_role_are_one_finding(harness: DoctorHarness) -> None:
    for name in ("w1", "w2", "w3"):
        harness.run(ALIVE, name)
    message = harness.finding("worker-roles").message
    assert message.startswith("the worker w1 and 2 more connect as ")


def test_workers_that_are_gone_are_not_named(harness: DoctorHarness) -> None:
    harness.run(CONNECTED, "stopped", Jsonb({"connection": "unencrypted"}))
    harness.run("SELECT mailgres.sign_off('stopped')")
    harness.run(CONNECTED, "killed", Jsonb({"connection": "unencrypted"}))
    harness.run("UPDATE mailgres.workers SET seen_at = now() - interval '2 minutes'")
    assert harness.findings("worker-roles") == []
    assert harness.findings("worker-tls") == []


def test_runs_by_cron_are_judged_for_a_while_after_they_ended(
    harness: DoctorHarness, server: Server
) -> None:
    """By the program itself: each run has a name of its own and signs off."""
    Program(harness.url)("process")
    assert "a superuser" in harness.finding("worker-roles").message
    assert harness.findings("worker-tls") == []
    (reported,) = harness.conn.execute("SELECT details FROM mailgres.workers").fetchone() or ({},)
    assert reported["connection"] == "local"
    travel(harness.conn, timedelta(minutes=20))
    assert harness.findings("worker-roles") == []
    with worker_login(harness, server) as worker:
        Program(worker.url)("process")
        assert harness.findings("worker-roles") == []


def test_a_shell_that_only_asks_may_be_the_owner_s(harness: DoctorHarness) -> None:
    assert harness.findings("worker-roles") == []
    found = harness.finding("worker-roles", providers="smtp")
    assert found.message.startswith("this shell, a worker's, connects as ")


# --- the way to the server


def test_doctor_reports_no_tls_problem_of_a_local_connection(harness: DoctorHarness) -> None:
    assert harness.findings("tls") == []


@pytest.mark.parametrize(
    ("transport", "words"),
    [
        (Transport("10.1.2.3", encrypted=False), "this shell connects across a network without"),
        (Transport("10.1.2.3", encrypted=True), "does not verify the server's certificate"),
        (Transport("10.1.2.3", encrypted=True, sslmode="verify-full"), None),
    ],
)
def test_doctor_warns_of_an_unverified_connection_across_a_network(
    harness: DoctorHarness, monkeypatch: pytest.MonkeyPatch, transport: Transport, words: str | None
) -> None:
    monkeypatch.setattr(access, "of_connection", lambda _: transport)
    found = harness.findings("tls")
    assert [one.severity for one in found] == (["warning"] if words else [])
    assert all(words and words in one.message for one in found)
    assert all("sslmode=verify-full" in (one.fix or "") for one in found)


@pytest.mark.parametrize(
    ("reported", "words"),
    [
        ("unencrypted", "across a network without TLS"),
        ("unverified", "does not verify the server's certificate"),
        ("verified", None),
        ("local", None),
        (None, None),
    ],
)
def test_doctor_warns_of_workers_whose_connection_is_not_verified(
    harness: DoctorHarness, reported: str | None, words: str | None
) -> None:
    harness.run(CONNECTED, "w1", Jsonb({"connection": reported} if reported else {}))
    found = harness.findings("worker-tls")
    assert [one.severity for one in found] == (["warning"] if words else [])
    assert all(words and words in one.message for one in found)


def test_the_operator_role_may_run_the_checks_of_connections(
    harness: DoctorHarness, server: Server
) -> None:
    harness.run(CONNECTED, "w1", Jsonb({"connection": "unverified"}))
    with login(harness, server) as operator:
        harness.run(f"GRANT mailgres_operator TO {operator.conn.info.user}")
        seen = replace(harness, url=operator.url)
        assert seen.finding("worker-roles").severity == "warning"
        assert seen.finding("worker-tls").severity == "warning"
