"""Dumps and restores with the client programs of every PostgreSQL on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from mailgres.embedded import EmbeddedError
from support.postgres import _candidates, _major

ROLES = ("mailgres_producer", "mailgres_worker", "mailgres_operator", "mailgres_analyst")
HOLDER = """
import os, sys
from pathlib import Path
from mailgres import embedded
with embedded.server(Path(sys.argv[1]), settings={"synchronous_commit": "off"}) as url:
    print(url, flush=True)
    sys.stdin.readline()
"""


@cache
def majors() -> tuple[int, ...]:
    """The versions of psql on this machine, oldest first."""
    found = {_major(path) for path in _candidates("psql")}
    return tuple(sorted(version for version in found if version >= 15))


def program(name: str, major: int) -> str:
    """A program of exactly this version."""
    found = [path for path in _candidates(name) if _major(path) == major]
    if not found:
        pytest.skip(f"there is no {name} of PostgreSQL {major} on this machine")
    return str(found[0])


def server_major(url: str) -> int:
    with psycopg.connect(url) as connection:
        return connection.info.server_version // 10000


def run(*command: str, stdin: bytes | None = None) -> bytes:
    """Run a program; what it says is in the failure."""
    done = subprocess.run(command, input=stdin, capture_output=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    return done.stdout


def dump(url: str, major: int, *options: str) -> bytes:
    return run(program("pg_dump", major), *options, f"--dbname={url}")


def restore_plain(text: bytes, url: str, major: int) -> None:
    """As `psql -v ON_ERROR_STOP=1 -f dump.sql` does."""
    run(
        *(program("psql", major), "-X", "-q", "-v", "ON_ERROR_STOP=1", f"--dbname={url}"),
        stdin=text,
    )


@contextmanager
def newest_server() -> Iterator[str]:
    """A server of the newest PostgreSQL, with the roles of mailgres and nothing else."""
    newest = Path(program("psql", majors()[-1])).parent
    with TemporaryDirectory(prefix="mailgres-tests-") as directory:
        Path(directory).chmod(0o711)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MAILGRES_EMBEDDED_BINARIES": str(newest)},
        )
        assert holder.stdout
        url = holder.stdout.readline().strip()
        try:
            if not url:
                raise EmbeddedError("it did not start")
            with psycopg.connect(url, autocommit=True) as connection:
                for role in ROLES:
                    connection.execute(f"CREATE ROLE {role} NOLOGIN")
            yield url
        finally:
            holder.communicate("\n")
