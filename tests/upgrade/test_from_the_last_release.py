"""Workers of the last release go on while the schema is upgraded, and after it was downgraded."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from mailgres import __version__, embedded, migrate, resources
from mailgres.errors import NotMigrated
from mailgres.schema.release import order
from mailgres.schema.sources import Sources
from support.postgres import run_script
from support.schema import add_revision, copy_migrations
from upgrade.harness import (
    ENQUEUE,
    Release,
    RoundTrips,
    errors,
    last_wheel,
    long_waits,
    watched_server,
)
from worker.harness import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# What an upgrade may contain: a column of the queue, an index, a trigger, a view, functions.
UP = "ALTER TABLE public.email_queue ADD COLUMN more text;\n"
DOWN = "ALTER TABLE public.email_queue DROP COLUMN more;\n"
INDEX = """\
-- not in a transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS email_queue_more_idx ON public.email_queue (more);
"""
NO_INDEX = """\
-- not in a transaction
DROP INDEX CONCURRENTLY IF EXISTS public.email_queue_more_idx;
"""
VIEW = "CREATE VIEW public.email_more AS SELECT id, more FROM public.email_queue;\n"
COUNTS = "SELECT status, count(*) FROM email_queue GROUP BY 1 ORDER BY 1"
SENT = "SELECT count(*) FROM email_queue WHERE status = 'sent'"
CAPTURED = "SELECT count(*), count(DISTINCT queue_id) FROM mailgres.captured"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return Release(last_wheel(), tmp_path_factory.mktemp("release"))


@pytest.fixture
def newer(tmp_path: Path) -> tuple[Path, Sources]:
    """This version with a revision and other objects on top."""
    directory = copy_migrations(resources.migrations_directory(), tmp_path / "migrations")
    last = resources.revisions()[-1]
    number = int(last[:4])
    names = [f"{number + 1:04}_column", f"{number + 2:04}_index"]
    add_revision(directory, UP, DOWN, names[0], before=last)
    add_revision(directory, INDEX, NO_INDEX, names[1], before=names[0])
    root = tmp_path / "sql"
    shutil.copytree(resources.sql_directory(), root)
    (root / "90_more.sql").write_text(VIEW, encoding="utf-8")
    wake = root / "30_engine/10_triggers/30_wake.sql"
    text = wake.read_text(encoding="utf-8")
    wake.write_text(text.replace("ROW WHEN (", "ROW WHEN (true AND "), encoding="utf-8")
    return directory, Sources(root)


class Queue:
    """A database of the last release on a server that logs waits, with a worker of that release."""

    def __init__(self, release: Release, server: str, log: Path) -> None:
        self.release = release
        self.log = log
        self.url = embedded.database(server, "queue")
        release.run(self.url, "migrate")
        self.conn = psycopg.connect(self.url, autocommit=True)
        self.workers: list[subprocess.Popen[str]] = []

    def one(self, query: str) -> tuple[object, ...]:
        return self.conn.execute(query.encode()).fetchone() or ()

    def sent(self) -> int:
        (count,) = self.one(SENT)
        assert isinstance(count, int)
        return count

    def worker(self) -> subprocess.Popen[str]:
        arguments = ("worker", "--concurrency", "4", "--worker-name", "old")
        self.workers.append(self.release.start(self.url, *arguments))
        return self.workers[-1]

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
                worker.communicate()
        self.conn.close()


@pytest.fixture
def queue(release: Release) -> Iterator[Queue]:
    with watched_server() as (server, log):
        made = Queue(release, server, log)
        try:
            yield made
        finally:
            made.close()


def stop(worker: subprocess.Popen[str]) -> str:
    """Stop a worker and return its log, in which nothing went wrong."""
    worker.send_signal(signal.SIGTERM)
    _, log = worker.communicate(timeout=60)
    assert worker.returncode == 0, log
    return log


def test_a_worker_of_the_last_release_goes_on_during_an_upgrade_and_after_it(
    queue: Queue, newer: tuple[Path, Sources]
) -> None:
    """None lost or sent twice, no error, no long wait for a lock; and back, with mail waiting."""
    directory, sources = newer
    assert order(queue.release.version) < order(__version__)
    queue.conn.execute(ENQUEUE, [1000])
    worker = queue.worker()
    until(lambda: queue.sent() > 0, "the worker sends")
    with RoundTrips(queue.url) as meanwhile:
        change = migrate.upgrade(queue.url, directory=directory, sources=sources)
    assert change.before != change.after
    assert change.replaced > 0
    during = queue.sent()
    queue.conn.execute(ENQUEUE, [500])
    until(lambda: queue.sent() == 1500, "everything is sent")
    log = stop(worker)
    assert during < 1500, "the upgrade came after the work"
    assert queue.one(CAPTURED) == (1500, 1500)

    # A worker of the last release starts on the new schema, too.
    queue.conn.execute(ENQUEUE, [100])
    worker = queue.worker()
    until(lambda: queue.sent() == 1600, "everything is sent")
    log += stop(worker)

    queue.conn.execute(ENQUEUE, [100])
    assert long_waits(queue.log, meanwhile) == []
    migrate.downgrade(queue.url, queue.release.version, directory=directory)
    assert queue.release.run(queue.url, "migrate", "--check") == "The schema is up to date.\n"
    worker = queue.worker()
    until(lambda: queue.sent() == 1700, "everything is sent after the downgrade")
    log += stop(worker)
    assert queue.one(CAPTURED) == (1700, 1700)
    assert [line for line in log.splitlines() if _is_bad(line)] == []
    assert errors(queue.log) == []


def test_a_worker_of_the_last_release_goes_on_while_the_printed_script_runs(
    queue: Queue, newer: tuple[Path, Sources]
) -> None:
    """Its sessions have compiled functions that return rows of a table that gets a column."""
    directory, sources = newer
    queue.conn.execute(ENQUEUE, [500])
    worker = queue.worker()
    until(lambda: queue.sent() > 0, "the worker sends")
    printed = migrate.script(directory=directory, sources=sources)
    with RoundTrips(queue.url) as meanwhile:
        run_script(queue.url, printed, "-v", "ON_ERROR_STOP=1")
    queue.conn.execute(ENQUEUE, [500])
    until(lambda: queue.sent() == 1000, "everything is sent")
    log = stop(worker)
    assert queue.one(CAPTURED) == (1000, 1000)
    assert [line for line in log.splitlines() if _is_bad(line)] == []
    assert errors(queue.log) == []
    assert long_waits(queue.log, meanwhile) == []


def _is_bad(line: str) -> bool:
    """Whether a line of a worker's log reports a fault."""
    try:
        entry = json.loads(line)
    except ValueError:
        return "rror" in line or "Traceback" in line
    return entry.get("level") in {"error", "critical"}


def test_this_version_upgrades_the_last_release_and_comes_back(queue: Queue) -> None:
    """As it is, without anything on top."""
    queue.conn.execute(ENQUEUE, [50])
    migrate.upgrade(queue.url)
    assert migrate.differences(queue.url) == ([], [])
    migrate.check(queue.url)
    worker = queue.worker()
    until(lambda: queue.sent() == 50, "everything is sent")
    stop(worker)
    queue.conn.execute(ENQUEUE, [50])
    migrate.downgrade(queue.url, queue.release.version)
    assert queue.release.run(queue.url, "migrate", "--check") == "The schema is up to date.\n"
    assert queue.release.run(queue.url, "migrate").startswith("Nothing to do")
    assert errors(queue.log) == []


def test_a_worker_of_this_version_refuses_the_schema_of_the_last_release(queue: Queue) -> None:
    if resources.sql_digest() == resources.sql_digest(queue.release.place / "mailgres" / "sql"):
        pytest.skip("sql/ is as in the last release")
    with pytest.raises(NotMigrated) as raised:
        migrate.check(queue.url)
    assert raised.value.hint == "Run `mailgres migrate`."
