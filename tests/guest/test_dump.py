"""A dump of a database with mailgres restores, in every format and for every role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from guest import archives, reported
from guest.test_drift import faults
from mailgres import migrate
from support.cluster import Cluster
from support.postgres import Server
from support.program import Program
from support.queue import Queue, report

EVERY_STATUS = {"pending": 2, "sending": 1, "sent": 2, "failed": 1, "cancelled": 1}
"""What `populate` leaves in the queue; the second of `pending` is scheduled for later."""


def populate(url: str) -> None:
    """An application's own objects before and after ours, and an email in every status."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.aardvark (id int PRIMARY KEY)")
        connection.execute("CREATE TABLE public.zebra (id int PRIMARY KEY)")
        connection.execute("INSERT INTO public.zebra VALUES (1)")
        queue = Queue(connection)
        reported.populate(queue)
        queue.enqueue(payload=PAYLOAD)
        queue.attempt("permanent", code="550", message="no such user")
        queue.run("SELECT cancel_email(%s)", queue.enqueue(payload=PAYLOAD))
        queue.enqueue(payload=PAYLOAD)
        queue.claim("a worker that is still at it", 1, "1 hour")
        queue.enqueue(payload=PAYLOAD, idempotency_key="k")
        later = "SELECT enqueue_email(NULL, 'welcome_user', 'b@example.com', p_scheduled_for =>"
        queue.run(f"{later} now() + interval '1 day', p_payload => '{{}}')")


PAYLOAD: dict[str, Any] = {"name": "Ana", "product": "Acme"}


@pytest.fixture(scope="module")
def populated(server: Server, template: str) -> Iterator[str]:
    with server.database(template) as url:
        populate(url)
        yield url


def check(url: str) -> None:
    """The schema is whole, the rows are there, and a worker drains the queue."""
    migrate.check(url)
    assert faults(url) == []
    with psycopg.connect(url, autocommit=True) as connection:
        queue = Queue(connection)
        assert queue.value("SELECT id FROM public.zebra") == 1
        counts = "SELECT status, count(*) FROM email_queue GROUP BY status"
        assert dict(connection.execute(counts).fetchall()) == EVERY_STATUS
        (email,) = queue.claim()
        assert email.idempotency_key == "k"
        queue.start_attempts([email])
        (done,) = queue.finish(report(email, "sent"))
        assert done.status == "sent"
        queue.run("SELECT mailgres.fold_rollups()")
        counted = "SELECT sum(emails) FROM mailgres.counted_by_status WHERE status = 'sent'"
        assert queue.value(counted) == EVERY_STATUS["sent"] + 1
        reported.check(queue)


def custom(url: str, target: str, major: int, place: Path) -> None:
    archive = str(place / "dump")
    archives.dump(url, major, "--format=custom", f"--file={archive}")
    restore(archive, target, major)


def directory(url: str, target: str, major: int, place: Path) -> None:
    archive = str(place / "dump")
    archives.dump(url, major, "--format=directory", "--jobs=2", f"--file={archive}")
    restore(archive, target, major, "--jobs=2")


def tar(url: str, target: str, major: int, place: Path) -> None:
    archive = str(place / "dump")
    archives.dump(url, major, "--format=tar", f"--file={archive}")
    restore(archive, target, major, "--single-transaction")


def schema_then_data(url: str, target: str, major: int, place: Path) -> None:
    """In two parts, the data while triggers and keys are there already."""
    del place
    archives.restore_plain(archives.dump(url, major, "--schema-only"), target, major)
    with psycopg.connect(target, autocommit=True) as connection:
        for row in connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace IN ('public'::regnamespace, 'mailgres'::regnamespace)"
        ).fetchall():
            assert connection.execute(f"SELECT count(*) FROM {row[0]}").fetchone() == (0,)
    text = archives.dump(url, major, "--data-only", "--disable-triggers")
    archives.restore_plain(text, target, major)


def clean(url: str, target: str, major: int, place: Path) -> None:
    """Over a database in which it was restored before."""
    del place
    text = archives.dump(url, major, "--clean", "--if-exists")
    for _ in range(2):
        archives.restore_plain(text, target, major)


def without_owner(url: str, target: str, major: int, place: Path) -> None:
    del place
    archives.restore_plain(archives.dump(url, major, "--no-owner"), target, major)


def as_inserts(url: str, target: str, major: int, place: Path) -> None:
    del place
    text = archives.dump(url, major, "--column-inserts", "--quote-all-identifiers")
    archives.restore_plain(text, target, major)


def restore(archive: str, target: str, major: int, *options: str) -> None:
    program = archives.program("pg_restore", major)
    archives.run(program, "--exit-on-error", f"--dbname={target}", *options, archive)


WAYS: list[Callable[[str, str, int, Path], None]] = [
    custom,
    directory,
    tar,
    schema_then_data,
    clean,
    without_owner,
    as_inserts,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_dump_restores_in_every_format(
    way: Callable[[str, str, int, Path], None],
    populated: str,
    empty_database_url: str,
    tmp_path: Path,
) -> None:
    way(populated, empty_database_url, archives.server_major(populated), tmp_path)
    check(empty_database_url)


@pytest.mark.parametrize("reader", archives.majors())
def test_a_plain_dump_restores_with_every_psql(
    reader: int, populated: str, empty_database_url: str
) -> None:
    """A psql counts words of SQL bodies to find their end, each version in a way of its own."""
    major = archives.server_major(populated)
    text = archives.dump(populated, major)
    if reader < major:
        pytest.skip("psql is older than the server, and so knows less than its dump")
    archives.restore_plain(text, empty_database_url, reader)
    check(empty_database_url)


def test_a_newer_pg_dump_restores_into_the_older_server(
    populated: str, empty_database_url: str
) -> None:
    """But for settings that the older server does not have, which a newer dump sets first."""
    newest = archives.majors()[-1]
    text = archives.dump(populated, newest)
    known = [line for line in text.splitlines() if line != b"SET transaction_timeout = 0;"]
    archives.restore_plain(b"\n".join(known) + b"\n", empty_database_url, newest)
    check(empty_database_url)


def test_an_owner_without_superuser_rights_can_restore_a_dump(
    cluster: Cluster, migrations: Path, tmp_path: Path
) -> None:
    """Into a database of its own; the roles of mailgres exist already on the server."""
    for role in archives.ROLES:
        cluster.admin.execute(f"CREATE ROLE {role} NOLOGIN")
    try:
        with cluster.owner() as source, cluster.owner() as target:
            migrate.upgrade(source, directory=migrations)
            populate(source)
            # The other owner is another role, so what belongs to the first becomes the second's.
            archive = str(tmp_path / "dump")
            major = archives.server_major(source)
            archives.dump(source, major, "--format=custom", f"--file={archive}")
            restore(archive, target, major, "--no-owner")
            check(target)
            owner = urlsplit(target).username
            with psycopg.connect(target) as connection:
                owners = "SELECT DISTINCT pg_get_userbyid(proowner) FROM pg_proc WHERE"
                owners += " pronamespace = 'mailgres'::regnamespace"
                assert connection.execute(owners).fetchall() == [(owner,)]
    finally:
        cluster.drop_roles(*archives.ROLES)


def test_after_a_dump_without_privileges_migrate_grants_them_again(
    server: Server, populated: str, empty_database_url: str, migrations: Path
) -> None:
    """As hosts and tools dump that leave out roles."""
    major = archives.server_major(populated)
    text = archives.dump(populated, major, "--no-owner", "--no-privileges")
    archives.restore_plain(text, empty_database_url, major)
    with server.one_at_a_time():
        migrate.upgrade(empty_database_url, directory=migrations)
    check(empty_database_url)


def test_a_program_works_on_the_restored_database(populated: str, empty_database_url: str) -> None:
    """The commands themselves, as an operator runs them after a restore."""
    major = archives.server_major(populated)
    archives.restore_plain(archives.dump(populated, major), empty_database_url, major)
    program = Program(empty_database_url)
    assert program.run("migrate", "--check").returncode == 0
    assert program.run("process", "--until-empty").returncode == 0
    with psycopg.connect(empty_database_url) as connection:
        waiting = "SELECT count(*) FROM email_queue WHERE status = 'pending' AND ready"
        assert connection.execute(waiting).fetchone() == (0,)
