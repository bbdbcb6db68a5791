"""What must not be lost in a crash of PostgreSQL is on disk before anybody acts on it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from embedded.harness import ServerDirectory, open_directory
from mailgres import embedded, migrate
from support.postgres import GIVEN_URL
from support.queue import WITH_KEYS, WITHOUT_KEYS, Queue, report

RAISED: dict[str, str] = {
    "off": "on",
    "local": "on",
    "remote_write": "on",
    "on": "on",
    "remote_apply": "remote_apply",
}
EVERY_SETTING = pytest.mark.parametrize(("given", "wanted"), RAISED.items())
Step = Callable[[Queue, Any], object]


def begin(queue: Queue, email: Any) -> object:
    return queue.start_attempts([email])


def finish(queue: Queue, email: Any) -> object:
    return queue.finish(report(email, "sent"))


def mark_sent(queue: Queue, email: Any) -> object:
    return queue.value("SELECT mark_email_sent(%s, 're_1')", email.id)


def in_force(queue: Queue, setting: str, step: Callable[[], object]) -> str:
    """The setting with which a transaction that had another one before the step will commit."""
    queue.run("SELECT set_config('synchronous_commit', %s, true)", setting)
    step()
    found: str = queue.value("SELECT current_setting('synchronous_commit')")
    return found


@EVERY_SETTING
def test_a_claim_commits_to_the_disk_at_least(queue: Queue, given: str, wanted: str) -> None:
    queue.enqueue()
    assert in_force(queue, given, queue.claim_one) == wanted
    queue.enqueue()
    assert in_force(queue, given, lambda: queue.claim_rpc(1)) == wanted, "of another's processor"


@EVERY_SETTING
@pytest.mark.parametrize("step", [begin, finish, mark_sent])
def test_without_keys_a_start_and_an_outcome_commit_to_the_disk_at_least(
    queue: Queue, step: Step, given: str, wanted: str
) -> None:
    queue.use_provider(WITHOUT_KEYS)
    queue.enqueue()
    email = queue.claim_one()
    assert in_force(queue, given, lambda: step(queue, email)) == wanted


def test_with_keys_an_outcome_may_be_lost_as_the_key_protects(queue: Queue) -> None:
    queue.use_provider(WITH_KEYS)
    queue.enqueue()
    email = queue.claim_one()
    assert in_force(queue, "off", lambda: finish(queue, email)) == "off"


def test_a_claim_of_nothing_and_enqueuing_leave_the_setting_to_the_application(
    queue: Queue,
) -> None:
    assert in_force(queue, "off", queue.claim) == "off"
    assert in_force(queue, "off", queue.enqueue) == "off"


LAZY = {"synchronous_commit": "off", "wal_writer_delay": "10s", "autovacuum": "off"}
"""Commits stay in memory for seconds, unless a transaction asks for more."""


@pytest.fixture
def directory() -> Iterator[ServerDirectory]:
    if GIVEN_URL:
        pytest.skip("only a server of our own is crashed")
    directory = open_directory()
    found = ServerDirectory(directory)
    yield found
    found.wait_until_quiet()
    shutil.rmtree(directory)


@contextmanager
def crashing(directory: ServerDirectory) -> Iterator[Queue]:
    """A queue whose server is killed at the end, with all that it had in memory."""
    with embedded.server(directory.path, settings=LAZY) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            yield Queue(connection)
            os.kill(directory.postmaster(), signal.SIGKILL)
        directory.wait_until_quiet()


def test_a_crash_loses_no_claim_no_start_and_no_outcome(
    directory: ServerDirectory, migrations: Path
) -> None:
    """The server loses what it had not written; nothing is sent twice."""
    with embedded.server(directory.path, settings=LAZY) as url:
        migrate.upgrade(url, directory=migrations)
    with crashing(directory) as queue:
        queue.use_provider(WITHOUT_KEYS)
        queue_id = queue.enqueue()
        queue.run("CHECKPOINT")
        claimed = queue.claim_one()
    with crashing(directory) as queue:
        assert queue.email(queue_id).lease_token == claimed.lease_token
        queue.start_attempts([claimed])
    with crashing(directory) as queue:
        assert queue.email(queue_id).attempt_started_at is not None
        queue.finish(report(claimed, "sent"))
    with crashing(directory) as queue:
        assert queue.email(queue_id).status == "sent"
