"""A migrated database for each kind of installation: a plain server, and a project on Supabase."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.cluster import PASSWORD, Cluster, cluster, supabase_project, supabase_roles
from support.fixtures import clock, committed, queue, shared_connection, shared_url
from support.queue import Queue

__all__ = [
    "PASSWORD",
    "Cluster",
    "clock",
    "cluster",
    "committed",
    "queue",
    "shared_connection",
    "shared_url",
    "supabase_roles",
]


@pytest.fixture(scope="session")
def supabase_url(cluster: Cluster, supabase_roles: None, migrations: Path) -> Iterator[str]:  # noqa: ARG001
    """A project on Supabase, as the superuser sees it."""
    with supabase_project(cluster, migrations) as url:
        yield cluster.superuser_url(url)


def in_vain(url: str) -> Iterator[Queue]:
    with (
        psycopg.connect(url, autocommit=True) as connection,
        connection.transaction(force_rollback=True),
    ):
        yield Queue(connection)


@pytest.fixture(params=["plain", "supabase"])
def installation(request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A queue in each kind of installation, in a transaction that is rolled back."""
    supabase = request.param == "supabase"
    url: str = request.getfixturevalue("supabase_url" if supabase else "shared_url")
    yield from in_vain(url)


@pytest.fixture
def supabase(supabase_url: str) -> Iterator[Queue]:
    """A queue in a project on Supabase, in a transaction that is rolled back."""
    yield from in_vain(supabase_url)


@contextmanager
def acting_as(queue: Queue, role: str) -> Iterator[Queue]:
    """Be another role for a while; what it did stays."""
    with queue.conn.transaction():
        queue.run(f"SET LOCAL ROLE {role}")
        yield queue
        queue.run("RESET ROLE")


def forbidden(queue: Queue, role: str, statement: str, *parameters: Any) -> bool:
    """Return whether a role is refused a statement for want of a privilege."""
    try:
        with acting_as(queue, role):
            queue.run(statement, *parameters)
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False
