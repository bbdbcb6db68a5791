from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from worker.harness import WorkerHarness


@pytest.fixture
def harness(conn: psycopg.Connection, database_url: str, tmp_path: Path) -> WorkerHarness:
    """The queue of the test's own database."""
    return WorkerHarness(conn, database_url, tmp_path)
