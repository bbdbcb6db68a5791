"""What the tests of the claim share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from claim.workbench import Workbench

if TYPE_CHECKING:
    import psycopg


@pytest.fixture
def bench(conn: psycopg.Connection) -> Workbench:
    """The queue of the test's own database."""
    return Workbench(conn)
