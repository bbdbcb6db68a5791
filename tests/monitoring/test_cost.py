"""No view looks at all emails, or at the whole log, however many there are."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from janitor.test_cost import FILL
from support.postgres import Connect, Server

SEQUENTIAL = """
    SELECT relname FROM pg_stat_xact_user_tables
    WHERE relname IN ('email_queue', 'email_logs', 'dead_letters') AND seq_scan > 0
"""
LARGE = {"email_common_errors"}
"""It reads up to 10,000 dead letters; where they are a quarter of the queue, the planner may read
all of it instead."""


@pytest.fixture(scope="module")
def large(server: Server, template: str) -> Iterator[str]:
    """100,000 emails, of which the planner knows."""
    with server.database(template) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(FILL)
            connection.execute("SET session_replication_role = origin")
            connection.execute("VACUUM (ANALYZE)")
            connection.execute("SELECT mailgres.measure_depth()")
            connection.execute("UPDATE mailgres.depth SET valid_until = 'infinity'")
        yield url


@pytest.mark.slow
def test_no_view_scans_the_queue(large: str, connect: Connect) -> None:
    connection = connect(large, autocommit=False)
    views = connection.execute("SELECT name, example FROM email_monitoring").fetchall()
    connection.rollback()
    for name, example in views:
        if name not in LARGE:
            connection.execute(example.encode())
            assert connection.execute(SEQUENTIAL).fetchall() == [], name
        connection.rollback()
