"""A copy of a database sends nothing until it is released."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg
import pytest

from guest import archives
from mailgres import migrate
from support.cluster import Cluster
from support.postgres import Server, database_name
from support.program import Program
from support.queue import WITHOUT_KEYS as SENDS
from support.queue import Queue

COPY = (
    "Quarantined: this database is a copy: it was restored from a dump, made from a template, or"
    " replicated."
)


@contextmanager
def opened(url: str) -> Iterator[Queue]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield Queue(connection)


@pytest.fixture
def original(empty_database_url: str, migrations: Path) -> str:
    """A database that was migrated where it is, with two due emails and a provider that sends."""
    migrate.upgrade(empty_database_url, directory=migrations)
    with opened(empty_database_url) as queue:
        queue.use_provider(SENDS)
        queue.enqueue()
        queue.enqueue()
    return empty_database_url


@contextmanager
def restored(url: str, server: Server, place: Path) -> Iterator[str]:
    major = archives.server_major(url)
    archive = str(place / "dump")
    archives.dump(url, major, "--format=custom", f"--file={archive}")
    with server.database() as target:
        restore = archives.program("pg_restore", major)
        archives.run(restore, "--exit-on-error", f"--dbname={target}", archive)
        yield target


@contextmanager
def cloned(url: str, server: Server, _place: Path) -> Iterator[str]:
    with server.database(database_name(url)) as target:
        yield target


Copy = Callable[[str, Server, Path], AbstractContextManager[str]]


@pytest.mark.parametrize("copy", [restored, cloned], ids=["a dump", "a template"])
def test_a_copy_sends_nothing_until_it_is_released(
    original: str, server: Server, tmp_path: Path, copy: Copy
) -> None:
    with copy(original, server, tmp_path) as url, opened(url) as queue:
        assert queue.claim() == []
        assert queue.rows("SELECT * FROM process_pending_emails_for_retry()") == []
        mailgres = Program(url)
        assert mailgres("quarantine", "status").splitlines() == [
            COPY,
            "2 emails are pending or being sent.",
            "Nothing is sent. `mailgres quarantine release` ends it.",
        ]
        assert mailgres("quarantine", "release") == "Released: emails are sent.\n"
        assert len(queue.claim()) == 2
        with opened(original) as first:
            assert len(first.claim()) == 2, "the original is not concerned"


def test_a_released_copy_is_an_original_whose_copies_are_quarantined(
    original: str, server: Server, tmp_path: Path
) -> None:
    with cloned(original, server, tmp_path) as url:
        with opened(url) as queue:
            queue.run("SELECT mailgres.release_quarantine()")
        with restored(url, server, tmp_path) as second, opened(second) as queue:
            assert queue.claim() == []


def test_copies_of_a_template_for_tests_send(original: str, server: Server, tmp_path: Path) -> None:
    said = Program(original)("quarantine", "release", "--anywhere")
    assert said == "It was not quarantined: emails are sent.\n"
    with restored(original, server, tmp_path) as url, opened(url) as queue:
        assert len(queue.claim()) == 2
        said = Program(url)("quarantine", "status").splitlines()[0]
        assert said == "Not quarantined: this database sends; so do copies of it."


def test_maintenance_of_tables_quarantines_nothing(original: str) -> None:
    with opened(original) as queue:
        for command in ("VACUUM FREEZE", "VACUUM FULL", "REINDEX TABLE", "ANALYZE"):
            queue.run(f"{command} mailgres.home_mark")
            queue.run(f"{command} mailgres.home")
        assert len(queue.claim()) == 2


def test_a_queue_can_be_quarantined_and_released_by_hand(
    committed: Queue, database_url: str
) -> None:
    mailgres = Program(database_url)
    committed.use_provider(SENDS)
    committed.enqueue()
    said = mailgres("quarantine", "start", "--because", "a branch for staging", "--dry-run")
    assert "dry run" in said
    assert committed.value("SELECT mailgres.is_quarantined()") is False
    said = mailgres("quarantine", "start", "--because", "a branch for staging")
    assert said == "Quarantined: nothing is sent. `mailgres quarantine release` ends it.\n"
    assert mailgres("quarantine", "start").startswith("Quarantined, as before: nothing is sent.")
    found = mailgres.json("quarantine", "status")
    assert found["because"] == "a branch for staging"
    assert (found["quarantined"], found["open_emails"]) == (True, 1)
    assert committed.claim() == []
    assert "dry run" in mailgres("quarantine", "release", "--dry-run")
    assert committed.claim() == []
    mailgres("quarantine", "release")
    assert len(committed.claim()) == 1


def test_a_quarantined_queue_neither_probes_nor_repeats_uncertain_emails(queue: Queue) -> None:
    queue.use_provider(SENDS)
    uncertain = queue.enqueue()
    queue.run(
        "UPDATE email_queue SET uncertain_since = mailgres.now(), provider = %s WHERE id = %s",
        *(SENDS, uncertain),
    )
    queue.run("SELECT mailgres.quarantine()")
    assert queue.claim() == []
    queue.run("UPDATE mailgres.route_providers SET provider = 'capture'")
    queue.run("UPDATE email_queue SET ready = true, next_retry_at = mailgres.now()")
    assert queue.claim() == [], "its provider is another one"
    queue.run("UPDATE mailgres.route_providers SET provider = %s", SENDS)
    queue.run("UPDATE mailgres.providers SET circuit = 'open', circuit_until = mailgres.now()")
    queue.enqueue()
    assert queue.claim() == []


def test_a_quarantined_queue_still_captures(queue: Queue) -> None:
    queue.enqueue()
    queue.run("SELECT mailgres.quarantine()")
    assert len(queue.claim()) == 1


def test_an_attempt_does_not_start_after_the_quarantine(queue: Queue) -> None:
    queue.use_provider(SENDS)
    queue.enqueue()
    (held,) = queue.claim()
    queue.run("SELECT mailgres.quarantine()")
    assert queue.start_attempts([held]) == set()
    assert queue.email(held.id).status == "pending"


def test_an_owner_without_rights_on_the_server_is_not_quarantined(
    cluster: Cluster, migrations: Path
) -> None:
    """What recognises database and server needs no privilege."""
    with cluster.owner("CREATEROLE") as url:
        migrate.upgrade(url, directory=migrations)
        with opened(url) as queue:
            queue.use_provider(SENDS)
            queue.enqueue()
            assert len(queue.claim()) == 1
            before = queue.value("SELECT server FROM mailgres.home")
            assert queue.reap() == 0
            assert queue.value("SELECT server FROM mailgres.home") == before


def test_databases_made_by_one_script_have_different_marks(original: str) -> None:
    """Two servers that one script set up are at the same transaction id."""
    with opened(original) as queue:
        same = "SELECT m.xmin::text = h.xmin::text FROM mailgres.home_mark m, mailgres.home h"
        assert queue.value(same) is False
        assert queue.value("SELECT mailgres.is_quarantined()") is False
