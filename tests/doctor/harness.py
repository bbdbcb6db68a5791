"""What the tests of the doctor share: see what it finds, and run the command that fixes it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psycopg

from mailgres.doctor import Finding, examine
from mailgres.settings import Settings
from support.postgres import Server, find_program
from support.program import PROGRAM


@dataclass(frozen=True)
class DoctorHarness:
    """A database, and the doctor for it."""

    url: str
    conn: psycopg.Connection

    def run(self, statement: str, *parameters: object) -> None:
        self.conn.execute(statement, parameters or None)

    def findings(self, check: str, **settings: Any) -> list[Finding]:
        """Return what one check finds, all being well left out."""
        given = Settings(database_url=self.url, **settings)
        found = examine(given, only=[check])
        return [one for one in found if one.severity != "ok"]

    def finding(self, check: str, **settings: Any) -> Finding:
        """The one thing that a check finds."""
        (found,) = self.findings(check, **settings)
        return found

    def fix(self, finding: Finding) -> None:
        """Run the command of a finding as an operator would."""
        assert finding.fix is not None
        psql = find_program("psql", self.conn.info.server_version // 10000)
        path = f"{psql.parent}:{PROGRAM.parent}:{os.environ['PATH']}"
        urls = {"DATABASE_URL": self.url, "ADMIN_DATABASE_URL": self.url}
        environment = {"PATH": path, "LC_ALL": "C.UTF-8", **urls}
        done = subprocess.run(
            ["/bin/sh", "-c", finding.fix],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "ERROR" not in done.stderr

    def fixed(self, check: str, **settings: Any) -> Finding:
        """The one thing that a check finds, after its command has made it vanish."""
        finding = self.finding(check, **settings)
        self.fix(finding)
        assert self.findings(check, **settings) == []
        return finding


@contextmanager
def login(harness: DoctorHarness, server: Server) -> Iterator[DoctorHarness]:
    """A role that may connect to the same database and nothing else."""
    with server.role() as name:
        harness.run(f"ALTER ROLE {name} LOGIN PASSWORD 'x'")
        parts = urlsplit(harness.url)
        url = parts._replace(netloc=f"{name}:x@{parts.hostname}:{parts.port}").geturl()
        with psycopg.connect(url, autocommit=True) as conn:
            yield DoctorHarness(url, conn)
        harness.run(f"DROP OWNED BY {name}")
