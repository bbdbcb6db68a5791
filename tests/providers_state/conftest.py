"""A queue whose default route leads to a provider that takes keys and one email a call."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from providers_state.harness import ProviderHarness
from support.fixtures import shared_connection, shared_url
from support.postgres import Connect
from support.queue import Clock

__all__ = ["shared_connection", "shared_url"]


@pytest.fixture
def harness(shared_connection: psycopg.Connection) -> Iterator[ProviderHarness]:
    """In a transaction that is rolled back: for tests of one connection."""
    with shared_connection.transaction(force_rollback=True):
        yield ProviderHarness(shared_connection).set()


@pytest.fixture
def clock(harness: ProviderHarness) -> Clock:
    """The clock of that queue, stopped."""
    return Clock(harness.conn)


@pytest.fixture
def committed(connect: Connect) -> ProviderHarness:
    """In a database of the test's own, for several connections."""
    return ProviderHarness(connect()).set()
