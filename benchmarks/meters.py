"""What work costs: CPU time of processes, from /proc, and bytes of WAL."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Cost:
    """CPU seconds of the clients and of the server, and bytes of WAL."""

    client: float
    server: float
    wal: int

    def __sub__(self, other: Cost) -> Cost:
        """Return what was spent since then."""
        return Cost(self.client - other.client, self.server - other.server, self.wal - other.wal)


def stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command's name; empty if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def parents() -> dict[int, list[int]]:
    """Return the children of every process."""
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := stat(int(folder.name))):
            found.setdefault(int(fields[1]), []).append(int(folder.name))
    return found


def cpu_of_tree(root: int) -> float:
    """Return the CPU seconds of a process, of its children, and of those that have ended."""
    children = parents()
    ticks, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        ticks += sum(int(field) for field in stat(pid)[11:15])
        waiting.extend(children.get(pid, []))
    return ticks / TICKS


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    return int(stat(pid)[21]) * PAGE / 1e6


def postmaster(conn: psycopg.Connection) -> int:
    """Return the process of the server."""
    return int(stat(conn.info.backend_pid)[1])


class Meter:
    """Reads what was spent so far."""

    def __init__(self, conn: psycopg.Connection) -> None:
        self.conn = conn
        self.server = postmaster(conn)

    def read(self, *clients: int) -> Cost:
        """Return the CPU of these processes and of the server, and the WAL."""
        row = self.conn.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        assert row is not None  # noqa: S101
        return Cost(sum(map(cpu_of_tree, clients)), cpu_of_tree(self.server), int(row[0]))
