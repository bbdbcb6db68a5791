"""Databases for tests: migrated once, then copied for every test, and dropped afterwards."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
from psycopg import sql

from mailgres import database, embedded, migrate
from mailgres.errors import MailgresError
from mailgres.templates import read_templates, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PREFIX = "mailgres_test_"
_ENOUGH_BYTES = 2 * 1024**3
_FASTER = {"synchronous_commit": "off", "full_page_writes": "off"}
"""What a test database need not survive: a power cut."""
_ONE_AT_A_TIME = "SELECT pg_advisory_lock(hashtext('mailgres tests'))"
_COPIES_MAY_SEND = "SELECT mailgres.release_quarantine(p_anywhere => true)"
_NEXT = "SELECT pg_advisory_unlock(hashtext('mailgres tests'))"


@contextmanager
def databases(
    url: str | None = None,
    *,
    templates: Sequence[Path] = (),
    prepare: Callable[[str], None] | None = None,
) -> Iterator[Databases]:
    """Yield the databases of one test run on a server: `url`, DATABASE_URL, or an embedded one.

    The database that the URL names is not touched: new ones are made beside it, from one that is
    migrated, has the `templates` of these files, and was given to `prepare`, for the application's
    own migrations.
    """
    with _server(url or os.environ.get("DATABASE_URL")) as server:
        made = Databases(server)
        try:
            made.fill(templates, prepare)
            yield made
        finally:
            made.close()


class Databases:
    """The databases of a test run; each is dropped when its test ends."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._template = f"{PREFIX}{uuid4().hex}"
        self._admin = database.connect(server, autocommit=True)

    def fill(self, templates: Sequence[Path], prepare: Callable[[str], None] | None) -> None:
        """Make the database that the others are copies of."""
        drafts = read_templates(list(templates)) if templates else []
        url = self._create(self._template, "template0")
        # Roles belong to the server: two test runs on one server make them one after the other.
        self._admin.execute(_ONE_AT_A_TIME)
        try:
            migrate.upgrade(url)
        finally:
            self._admin.execute(_NEXT)
        with database.connect(url) as connection:
            for draft in drafts:
                stored.push(connection, draft)
            connection.execute(_COPIES_MAY_SEND)
        if prepare:
            prepare(url)

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the URL of a new database, and drop it afterwards."""
        name = f"{PREFIX}{uuid4().hex}"
        try:
            yield self._create(name, self._template)
        finally:
            self._drop(name)

    def close(self) -> None:
        """Drop what is left."""
        self._drop(self._template)
        self._admin.close()

    def _create(self, name: str, template: str) -> str:
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {} ENCODING 'UTF8'")
        try:
            self._admin.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        except psycopg.errors.InsufficientPrivilege:
            raise MailgresError(
                "The role of DATABASE_URL may not create databases for tests",
                "ALTER ROLE … CREATEDB; or leave DATABASE_URL unset: tests then start a server.",
            ) from None
        except psycopg.errors.ObjectInUse:
            raise MailgresError(
                "The prepared database is in use, so it cannot be copied",
                "Close all connections to it in mailgres_prepare.",
            ) from None
        return embedded.database_url(self._server, name)

    def _drop(self, name: str) -> None:
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        self._admin.execute(drop.format(sql.Identifier(name)))


def _memory() -> Path | None:
    """Return a directory in memory, if there is enough: tests make and drop many databases."""
    memory = Path("/dev/shm")  # noqa: S108 - the directory below it is private
    if not memory.is_dir() or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return None
    return memory if shutil.disk_usage(memory).free > _ENOUGH_BYTES else None


@contextmanager
def _server(url: str | None) -> Iterator[str]:
    if url:
        yield url
        return
    with TemporaryDirectory(prefix="mailgres-tests-", dir=_memory()) as directory:
        # The account that root's server runs as has to enter it.
        Path(directory).chmod(0o711)
        with embedded.server(Path(directory), settings=_FASTER) as started:
            yield started
