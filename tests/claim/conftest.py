"""What the tests of the claim share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from claim.harness import ClaimHarness

if TYPE_CHECKING:
    import psycopg


@pytest.fixture
def harness(conn: psycopg.Connection) -> ClaimHarness:
    """The queue of the test's own database."""
    return ClaimHarness(conn)
