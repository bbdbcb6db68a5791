"""Workers, commands and the Python API run no object that was planted in `public`.

The path of their sessions is the worst there is: `public`, where everything of PostgreSQL's own is
planted again, before `pg_catalog`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

import mailgres
from mailgres import migrate
from mailgres.metrics.queue import QueueReader
from mailgres.worker.store import Store
from support.planted import alarms, restartable
from support.postgres import Server
from support.program import Program
from support.sources import OPENERS, open_source

COMMANDS = """
    migrate --check
    migrate
    status
    enqueue welcome_user ana@example.com --payload {"name":"Ana","product":"Acme"}
    list
    list --status pending --template welcome_user --recipient ana
    show {sent}
    show {dead}
    eta
    process --until-empty
    janitor --all
    janitor --all --dry-run
    retry --status failed --since 7d --dry-run
    retry {dead} --dry-run
    cancel --status pending --since 7d --dry-run
    cancel {waiting} --dry-run
    reschedule {waiting} --to 1h --dry-run
    dlq list
    dlq show {dead}
    dlq stats
    providers list
    providers pause capture
    providers resume capture
    providers limit capture --rate 10/s
    providers reset capture
    routes list
    routes pause default
    routes resume default
    tenants list
    tenants pause acme
    tenants resume acme
    tenants weight acme 2
    policies list
    policies set stepped --retries 3
    suppressions add bob@example.com
    suppressions list
    suppressions remove bob@example.com
    senders list
    producers list
    templates list
    templates show welcome_user
    alerts list
    alerts rules
    alerts check
    alerts set failure_rate --threshold 50
    alerts reset-webhook
    doctor --offline
"""

SETUP = """
    SELECT public.enqueue_email(NULL, 'welcome_user', 'ana@example.com', '{"name": "A", "product": "B"}'),
           public.enqueue_email(NULL, 'welcome_user', 'bob@example.com', '{"name": "A", "product": "B"}'),
           public.enqueue_email(NULL, 'welcome_user', 'eve@example.com', '{"name": "A", "product": "B"}',
                                p_scheduled_for => now() + interval '1 day', p_tenant_id => 'acme')
"""  # noqa: E501


@dataclass(frozen=True)
class Hostile:
    """A database with every object that an attacker can plant, and some emails."""

    url: str
    clean: psycopg.Connection
    names: dict[str, str]

    def alarms(self) -> int:
        return alarms(self.clean)


@pytest.fixture(scope="module")
def hostile(server: Server, template: str) -> Iterator[Hostile]:
    with (
        server.role() as planter,
        server.database(template) as url,
        psycopg.connect(url, autocommit=True) as clean,
    ):
        row = clean.execute(SETUP).fetchone()
        assert row is not None
        sent, dead, waiting = row
        clean.execute("SELECT public.mark_email_sent(%s, 're_1')", [sent])
        clean.execute(
            "UPDATE public.email_queue SET status = 'failed', error_message = 'no' WHERE id = %s",
            [dead],
        )
        restartable(clean, planter)
        clean.execute("SET search_path = pg_catalog, pg_temp")
        names = {"sent": str(sent), "dead": str(dead), "waiting": str(waiting)}
        yield Hostile(f"{url}?options=-csearch_path%3Dpublic%2Cpg_catalog", clean, names)
        clean.execute(f"DROP OWNED BY {planter} CASCADE")


@pytest.mark.parametrize("command", [line.strip() for line in COMMANDS.strip().splitlines()])
def test_a_command_runs_nothing_that_was_planted(hostile: Hostile, command: str) -> None:
    before = hostile.alarms()
    words = [
        hostile.names.get(word.strip("{}"), word) for word in shlex.split(command, posix=False)
    ]
    done = Program(hostile.url).run(*words)
    assert hostile.alarms() == before
    assert "planted" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_command_that_suggests_a_name_runs_nothing_that_was_planted(hostile: Hostile) -> None:
    """It asks after the transaction that failed."""
    before = hostile.alarms()
    _, hint = Program(hostile.url).fails("providers", "pause", "captur")
    assert "Did you mean capture?" in hint
    assert hostile.alarms() == before


def test_a_worker_and_its_metrics_run_nothing_that_was_planted(hostile: Hostile) -> None:
    before = hostile.alarms()
    store = Store(hostile.url, worker=f"w-{uuid4().hex}")
    try:
        assert QueueReader(store).read()
        with store.connection() as connection:
            row = connection.execute("SHOW search_path").fetchone()
    finally:
        store.close()
    assert row == ("pg_catalog, pg_temp",)
    assert hostile.alarms() == before


@pytest.mark.parametrize("opener", OPENERS)
def test_the_python_api_runs_nothing_that_was_planted_and_sets_nothing(
    hostile: Hostile, opener: str
) -> None:
    before = hostile.alarms()
    # What SQLAlchemy and asyncpg ask when they connect is the application's affair.
    with open_source[opener](hostile.url.partition("?")[0]) as source:
        source.execute("SET search_path = public, pg_catalog")
        email_id = source.call(mailgres.enqueue, "welcome_user", "ana@example.com", {})
        source.call(
            mailgres.enqueue_many,
            [{"template_type": "welcome_user", "recipient_email": "bob@example.com"}],
        )
        source.call(mailgres.cancel, email_id)
        source.rollback()
    assert hostile.alarms() == before


def test_a_migration_runs_nothing_that_was_planted(
    server: Server, template: str, migrations: Path
) -> None:
    with server.role() as planter, server.database(template) as url:
        with psycopg.connect(url, autocommit=True) as clean:
            restartable(clean, planter)
        hostile = f"{url}?options=-csearch_path%3Dpublic%2Cpg_catalog"
        migrate.check(hostile, directory=migrations)
        migrate.upgrade(hostile, directory=migrations)
        with psycopg.connect(url, autocommit=True) as clean:
            clean.execute("SET search_path = pg_catalog, pg_temp")
            assert alarms(clean) == 0
            clean.execute(f"DROP OWNED BY {planter} CASCADE")
