"""A server that can be switched off and on, with all that works on it."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from mailgres import embedded, migrate
from worker.harness import WorkerHarness, until


def is_cut(connection: psycopg.Connection) -> bool:
    try:
        connection.execute("SELECT")
    except psycopg.OperationalError:
        return True
    return False


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
        assert urlsplit(self._start()).port == urlsplit(self.url).port, "its port was taken"
        self.conn = psycopg.connect(self.url, autocommit=True)

    def switch_off(self) -> None:
        """Let it shut down; every connection is cut."""
        self.conn.close()
        self._users.close()
        until(lambda: not self.listens(), "the server is off")

    def restart(self) -> None:
        """Shut it down and start it again."""
        self.switch_off()
        self.switch_on()

    def crash(self) -> None:
        """Kill a backend: the postmaster lives on, and restarts all other processes."""
        with psycopg.connect(self.url, autocommit=True) as witness:
            os.kill(self.conn.info.backend_pid, signal.SIGKILL)
            until(lambda: is_cut(witness), "the server ends its other processes")
        self._reconnect()

    def cut_connections(self) -> None:
        """Terminate all connections."""
        with suppress(psycopg.OperationalError):
            self.conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'app'"
            )
        self._reconnect()

    def _reconnect(self) -> None:
        """Wait until the server accepts a connection that outlives the disturbance."""
        self.conn.close()

        def connected() -> bool:
            with suppress(psycopg.OperationalError):
                self.conn = psycopg.connect(self.url, autocommit=True)
                self.conn.execute("SELECT")
                return True
            return False

        until(connected, "the server accepts connections again")

    def under_way(self) -> int:
        return len(self.ledger.entries("inside")) - len(self.ledger.entries("left"))

    def listens(self) -> bool:
        address = urlsplit(self.url)
        try:
            socket.create_connection((address.hostname or "", address.port or 0), 1).close()
        except OSError:
            return False
        return True
