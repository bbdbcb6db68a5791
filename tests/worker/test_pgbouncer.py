"""Behind a pooler in transaction mode: no LISTEN, no prepared statements, and it works."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import psycopg
import pytest

from mailgres.worker.store import Store
from support.postgres import Connect, database_name
from worker.harness import WorkerHarness, until

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CONFIG = """
[databases]
{name} = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
"""
pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    """The test's database through PgBouncer."""
    address, port = urlsplit(database_url), free_port()
    with TemporaryDirectory(prefix="mailgres-tests-") as directory:
        config = Path(directory, "pgbouncer.ini")
        config.write_text(
            CONFIG.format(
                name=database_name(database_url),
                host=address.hostname,
                port=address.port or 5432,
                user=address.username,
                password=address.password,
                listen=port,
            )
        )
        account = None
        if os.geteuid() == 0:  # it refuses to run as root
            account = "nobody"
            for path in (Path(directory), config):
                shutil.chown(path, account)
        with subprocess.Popen(
            [str(PGBOUNCER), "-q", str(config)], stderr=subprocess.DEVNULL, user=account
        ) as bouncer:
            try:
                url = address._replace(netloc=f"{address.username}@127.0.0.1:{port}").geturl()
                until(lambda: answers(url), "pgbouncer answers")
                yield url
            finally:
                bouncer.kill()


def test_behind_pgbouncer_a_worker_polls(harness: WorkerHarness, pooled_url: str) -> None:
    email = harness.enqueue()
    with harness.script("worker", "--database-url", pooled_url, "--poll-interval", "1s") as worker:
        until(lambda: harness.status_of(email) == "sent", "it is sent")
        more = [harness.enqueue() for _ in range(30)]
        until(lambda: harness.statuses() == {"sent": 31}, "those that come later, too")
        assert worker.stop()["sent"] == 1 + len(more)
        assert harness.value("SELECT count(*) FROM mailgres.sleepers") == 0
    assert worker.log.count("behind a transaction pooler") == 1
    assert "Traceback" not in worker.log
    assert "ERROR" not in worker.log


def test_behind_pgbouncer_two_workers_send_each_email_once(
    harness: WorkerHarness, pooled_url: str
) -> None:
    harness.use_double(idempotent=False)
    emails = harness.fill(100, tenants=5)
    double = {"idempotent": False, "delay": 0.01}
    with (
        harness.worker(name="one", url=pooled_url, double=double) as one,
        harness.worker(name="two", url=pooled_url, double=double) as two,
    ):
        harness.until_settled()
        assert one.stop()["sent"] + two.stop()["sent"] == 100
    assert harness.ledger.accepted() == dict.fromkeys(emails, 1)


def test_behind_pgbouncer_the_statement_timeout_is_per_transaction(
    harness: WorkerHarness, pooled_url: str, connect: Connect
) -> None:
    """It holds for a transaction, and does not stay with a connection that others get next."""
    store = Store(pooled_url, worker="here", statement_timeout=timedelta(milliseconds=100))
    harness.enqueue()
    lock = connect(autocommit=False)
    lock.execute("LOCK TABLE email_queue")
    try:
        with pytest.raises(psycopg.errors.QueryCanceled):
            store.claim(1, timedelta(minutes=1), ["capture"])
        with store.pool.connection() as plain:
            assert plain.execute("SHOW statement_timeout").fetchone() == ("0",)
        lock.rollback()
        assert len(store.claim(1, timedelta(minutes=1), ["capture"])) == 1
    finally:
        store.close()


def test_listen_on_listens_also_behind_pgbouncer(pooled_url: str) -> None:
    """The setting `listen = on` says that this pooler pools sessions."""
    store = Store(pooled_url, worker="here", listen="on")
    store.close()
    assert (store.pooled, store.listens) == (True, True)
