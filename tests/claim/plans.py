"""What PostgreSQL does inside a function: its plans, what it reads, what it touches.

Two ways to look. The server's own counters work everywhere. auto_explain shows each plan, also
of statements inside functions, but only a superuser may load it, and not every build has it.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from claim.harness import ClaimHarness

EXPLAIN_EVERYTHING = """
    SET auto_explain.log_min_duration = 0;
    SET auto_explain.log_nested_statements = on;
    SET auto_explain.log_analyze = on;
    SET auto_explain.log_timing = off;
    SET auto_explain.log_format = json;
    SET client_min_messages = log;
"""

COUNTERS = """
    SELECT seq_scan, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
    FROM pg_stat_xact_user_tables WHERE relid = 'public.email_queue'::regclass
"""


@dataclass(frozen=True)
class Node:
    """A step of a plan that was executed."""

    query: str
    kind: str
    table: str | None
    rows: int  # read or put out, over all loops, those that a filter removed included
    loops: int


class Reads(NamedTuple):
    """What was read of the queue."""

    sequential_scans: int
    rows: int


def _nodes(plan: dict[str, Any], query: str) -> Iterator[Node]:
    loops = plan.get("Actual Loops", 0)
    rows = plan.get("Actual Rows", 0) + sum(
        count for key, count in plan.items() if key.startswith("Rows Removed by")
    )
    yield Node(query, plan["Node Type"], plan.get("Relation Name"), int(rows * loops), loops)
    for child in plan.get("Plans", ()):
        yield from _nodes(child, query)


@contextmanager
def watched(connection: psycopg.Connection) -> Iterator[list[Node]]:
    """Collect the steps of all plans that are executed meanwhile."""
    try:
        connection.execute("LOAD 'auto_explain'")
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedFile) as error:
        pytest.skip(f"auto_explain cannot be loaded here: {error}")
    found: list[Node] = []

    def collect(notice: psycopg.errors.Diagnostic) -> None:
        _, plan_follows, text = (notice.message_primary or "").partition("plan:\n")
        if plan_follows:
            explained = json.loads(text)
            found.extend(_nodes(explained["Plan"], explained["Query Text"]))

    connection.execute(EXPLAIN_EVERYTHING)
    connection.add_notice_handler(collect)
    try:
        yield found
    finally:
        connection.remove_notice_handler(collect)
        connection.execute("RESET client_min_messages")
        connection.execute("SET auto_explain.log_min_duration = -1")


def reads(harness: ClaimHarness) -> Reads:
    """Return what this transaction has read of the queue so far."""
    row = harness.connection.execute(COUNTERS).fetchone()
    assert row is not None
    return Reads(*row)


def buffers(harness: ClaimHarness, query: str, *values: Any) -> int:
    """Return how many pages a query touches, those inside its functions included."""
    explained = harness.ask(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {query}", *values)
    plan = explained[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
