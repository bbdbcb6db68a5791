"""A server that can be switched off and on, with all that works on it."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from mailgres import embedded, migrate
from worker.harness import WorkerHarness, until


class RestartableHarness(WorkerHarness):
    """A bench on a server of its own, which can be switched off and on."""

    def __init__(self, place: Path, directory: Path, migrations: Path) -> None:
        self._place = place
        self._users = ExitStack()
        url = embedded.database(self._start(), "app")
        migrate.upgrade(url, directory=migrations)
        super().__init__(psycopg.connect(url, autocommit=True), url, directory)

    def _start(self) -> str:
        return self._users.enter_context(embedded.server(self._place))

    def switch_on(self) -> None:
        self._start()
        self.conn = psycopg.connect(self.url, autocommit=True)

    def switch_off(self) -> None:
        """Let it shut down; every connection is cut."""
        self.conn.close()
        self._users.close()
        until(lambda: not self.listens(), "the server is off")

    def under_way(self) -> int:
        return len(self.ledger.entries("inside")) - len(self.ledger.entries("left"))

    def listens(self) -> bool:
        address = urlsplit(self.url)
        try:
            socket.create_connection((address.hostname or "", address.port or 0), 1).close()
        except OSError:
            return False
        return True
