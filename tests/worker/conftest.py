from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from worker.bench import Bench


@pytest.fixture
def bench(conn: psycopg.Connection, database_url: str, tmp_path: Path) -> Bench:
    """The queue of the test's own database."""
    return Bench(conn, database_url, tmp_path)
