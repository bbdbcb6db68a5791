"""deploy/roles.sql, run for real: what the owner and the login role of workers can do."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import psycopg
import pytest

from deploy.files import DEPLOY, read
from mailgres import embedded
from support.cluster import Cluster
from support.postgres import run_program
from support.program import PROGRAM, Program
from worker.harness import until

OWNER, LOGIN = "mailgres_owner", "mailgres_worker_login"
PASSWORDS = {"OWNER_PASSWORD": "it's the owner's", "WORKER_PASSWORD": "the-worker-s-own"}
WELCOME = """SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com',
    '{"name": "Ana", "product": "Acme"}')"""
ATTRIBUTES = "rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls, rolcanlogin"
REFUSED = [
    WELCOME,
    "SELECT recipient_email FROM email_queue",
    "UPDATE email_queue SET status = 'sent'",
    "TRUNCATE email_queue",
    "DROP TABLE email_queue",
    "ALTER TABLE email_queue ADD COLUMN x int",
    "ALTER TABLE email_queue DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE email_queue DISABLE TRIGGER USER",
    "CREATE INDEX ON email_queue (status)",
    "CREATE OR REPLACE FUNCTION mailgres.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
    "DROP FUNCTION public.cancel_email",
    "ALTER FUNCTION mailgres.claim SECURITY INVOKER",
    "DROP VIEW email_kpis",
    "DROP SCHEMA mailgres CASCADE",
    "CREATE TABLE public.planted ()",
    "CREATE TABLE mailgres.planted ()",
    "CREATE TEMPORARY TABLE planted ()",
    "CREATE SCHEMA planted",
    "CREATE ROLE planted",
    "ALTER ROLE mailgres_worker_login SUPERUSER",
    "SET ROLE mailgres_owner",
    "SET ROLE mailgres_operator",
    "GRANT mailgres_operator TO mailgres_worker_login",
    "SELECT mailgres.secure()",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "SELECT pg_read_file('PG_VERSION')",
]


@dataclass(frozen=True)
class Deployed:
    """A database that was set up as compose does it."""

    admin_url: str
    owner: Program
    worker: Program

    def ask(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.admin_url, autocommit=True) as admin:
            return admin.execute(query.encode()).fetchall()


def set_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what PostgreSQL's image does with a new volume."""
    for name, value in PASSWORDS.items():
        monkeypatch.setenv(name, value)
    for file in ("roles.sql", "roles.sql", "docker/passwords.sql"):  # the first also twice
        run_program("psql", url, "-X", "-v", "ON_ERROR_STOP=1", "-f", str(DEPLOY / file))


def url_of(url: str, role: str, variable: str) -> str:
    parts = urlsplit(url)
    password = PASSWORDS[variable].replace("'", "%27").replace(" ", "%20")
    return parts._replace(netloc=f"{role}:{password}@{parts.hostname}:{parts.port}").geturl()


@pytest.fixture(scope="module")
def deployed(cluster: Cluster) -> Iterator[Deployed]:
    with cluster.server.database() as url:
        with pytest.MonkeyPatch.context() as environment:
            set_up(url, environment)
        owner = Program(url_of(url, OWNER, "OWNER_PASSWORD"))
        done = owner.run("migrate")
        assert (done.returncode, done.stderr) == (0, "")
        yield Deployed(url, owner, Program(url_of(url, LOGIN, "WORKER_PASSWORD")))
    cluster.drop_roles(OWNER, LOGIN)


def test_the_worker_role_sends_and_does_the_upkeep(deployed: Deployed) -> None:
    deployed.ask(WELCOME)
    done = deployed.worker.run("process", "--until-empty")
    assert '"sent": 1' in done.stdout, done.stderr
    reports = [json.loads(line) for line in deployed.worker("janitor", "--all").splitlines()]
    assert len(reports) > 5
    assert deployed.ask("SELECT count(*) FROM mailgres.janitor_failures") == [(0,)]


def test_a_worker_runs_with_the_worker_role_and_the_doctor_is_content(deployed: Deployed) -> None:
    environment = {"DATABASE_URL": deployed.worker.url, "LC_ALL": "C.UTF-8"}
    with subprocess.Popen([PROGRAM, "worker"], env=environment, cwd="/") as worker:
        try:
            role = f"SELECT 1 FROM mailgres.workers WHERE role = '{LOGIN}'"
            until(lambda: deployed.ask(role), "the worker lives")
            ((queue_id,),) = deployed.ask(WELCOME)
            sent = f"SELECT 1 FROM email_queue WHERE status = 'sent' AND id = '{queue_id}'"
            until(lambda: deployed.ask(sent), "it sends")
            for shell in (deployed.worker, Program(deployed.admin_url)):
                found = json.loads(shell("doctor", "--offline", "--json"))
                assert [one for one in found if one["severity"] in ("warning", "error")] == []
                judged = {one["check"]: one["severity"] for one in found}
                assert judged["worker-roles"] == judged["worker-tls"] == judged["tls"] == "ok"
        finally:
            worker.terminate()
    assert worker.returncode == 0


@pytest.mark.parametrize("statement", REFUSED)
def test_the_worker_role_can_do_nothing_else(deployed: Deployed, statement: str) -> None:
    with (
        psycopg.connect(deployed.worker.url, autocommit=True) as login,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        login.execute(statement.encode())


def test_neither_role_has_more_than_it_needs(deployed: Deployed) -> None:
    roles = f"SELECT {ATTRIBUTES} FROM pg_roles WHERE rolname IN ('{OWNER}', '{LOGIN}')"
    assert deployed.ask(roles) == [(False, False, False, False, False, True)] * 2
    member = f"""SELECT r.roleid::regrole::text FROM pg_auth_members r
                 WHERE r.member IN ('{OWNER}'::regrole, '{LOGIN}'::regrole)"""
    assert deployed.ask(member) == [("mailgres_worker",)]
    owned = "SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'mailgres'"
    assert deployed.ask(owned) == [(OWNER,)]


def test_the_owner_role_can_migrate_again(deployed: Deployed) -> None:
    assert deployed.owner("migrate").startswith("Nothing to do")
    assert deployed.owner.run("migrate", "--check").returncode == 0


@pytest.mark.parametrize(
    ("file", "role"), [("mailgres.env.example", LOGIN), ("mailgres-migrate.env.example", OWNER)]
)
def test_each_example_connects_with_its_own_role(file: str, role: str) -> None:
    (url,) = re.findall(r"^DATABASE_URL='(.*)'$", read(file), re.MULTILINE)
    assert urlsplit(url).username == role
    other = OWNER if role == LOGIN else LOGIN
    assert other not in read(file)


def test_a_missing_password_stops_the_script_that_sets_passwords(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a role would be left without one, or with the name of the variable."""
    monkeypatch.delenv("OWNER_PASSWORD", raising=False)
    script = str(DEPLOY / "docker" / "passwords.sql")
    with pytest.raises(AssertionError, match="syntax error"):
        run_program("psql", deployed.admin_url, "-X", "-v", "ON_ERROR_STOP=1", "-f", script)
    assert deployed.owner.run("migrate", "--check").returncode == 0, "the password is the same"


def test_no_password_reaches_the_log_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    logs_all = {"log_statement": "all", "log_min_duration_statement": "0"}
    with TemporaryDirectory(prefix="mailgres-tests-") as directory:
        Path(directory).chmod(0o711)
        with embedded.server(Path(directory), settings=logs_all) as url:
            set_up(url, monkeypatch)
        log = "".join(file.read_text() for file in Path(directory).rglob("*.log"))
    assert "ALTER ROLE mailgres_owner LOGIN" in log, "it is the log that was read"
    assert "PASSWORD" not in log
    assert not [one for one in PASSWORDS.values() if one in log]
