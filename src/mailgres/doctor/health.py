"""Check the tables: invalid indexes, dead rows, and sessions that prevent their removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mailgres.doctor.finding import Check, Finding, duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.doctor.finding import DoctorContext

OLD, VERY_OLD = 300, 3600
"""Seconds after which an open transaction is a warning, and an error."""
MANY_DEAD, DEAD_SHARE = 50_000, 0.2
SLACK = 64 * 1024**2
"""Bytes that an index may have regardless of its entries: vacuum returns pages late."""
ENTRY = 400
"""Bytes per entry above which an index counts as mostly empty."""


def indexes(context: DoctorContext) -> Iterator[Finding]:
    """Check that no index is invalid."""
    for row in context.ask("invalid_indexes"):
        yield Finding(
            "indexes",
            "error",
            f"{row['index']} is invalid: it is maintained, but never used",
            context.psql(f"REINDEX INDEX CONCURRENTLY {row['index']}"),
        )


def bloat(context: DoctorContext) -> Iterator[Finding]:
    """Check that dead rows are removed and that indexes are not mostly empty."""
    for row in context.ask("tables"):
        if row["autovacuum"] is False:
            reset = f"ALTER TABLE {row['table']} RESET (autovacuum_enabled)"
            yield Finding(
                "bloat", "error", f"autovacuum is off for {row['table']}", context.psql(reset)
            )
        if is_bloated(row["live"], row["dead"]):
            yield Finding(
                "bloat",
                "warning",
                f"{row['table']} has {row['dead']:,} dead rows and {row['live']:,} live ones",
                context.psql(f"VACUUM (ANALYZE) {row['table']}"),
            )
    for row in context.ask("index_sizes"):
        if is_mostly_empty(row["bytes"], row["entries"]):
            yield Finding(
                "bloat",
                "warning",
                f"{row['index']} takes {row['bytes'] / 1024**2:,.0f} MB for"
                f" {row['entries']:,.0f} entries",
                context.psql(f"REINDEX INDEX CONCURRENTLY {row['index']}"),
            )
    if context.one("autovacuum")["off"]:
        on = context.psql("ALTER SYSTEM SET autovacuum = on", "SELECT pg_reload_conf()")
        yield Finding("bloat", "error", "autovacuum is off for the whole server", on)


def is_bloated(live: int, dead: int) -> bool:
    """Return whether there are more dead rows than vacuum usually leaves."""
    return dead > MANY_DEAD and dead > live * DEAD_SHARE


def is_mostly_empty(size: int, entries: float) -> bool:
    """Return whether an index is too large for its entries; -1 entries means unknown."""
    return entries >= 0 and size > SLACK + entries * ENTRY


def transactions(context: DoctorContext) -> Iterator[Finding]:
    """Check that no old snapshot prevents the removal of dead rows."""
    for row in context.ask("old_transactions", old=OLD):
        yield Finding(
            "transactions",
            "error" if row["seconds"] > VERY_OLD else "warning",
            f"a transaction of {row['who']} has been open for {duration(row['seconds'])}"
            f" ({row['state']}): no dead row can be removed, and the queue slows down",
            context.psql(f"SELECT pg_terminate_backend({row['pid']})"),
        )
    for row in context.ask("prepared_transactions", old=OLD):
        yield Finding(
            "transactions",
            "error",
            f"the prepared transaction {row['gid']!r} of {row['owner']} has been waiting for"
            f" {duration(row['seconds'])}",
            context.psql(f"ROLLBACK PREPARED {row['quoted']}"),
        )
    for row in context.ask("idle_slots"):
        yield Finding(
            "transactions",
            "warning",
            f"the replication slot {row['slot']} is not in use and keeps old rows and WAL",
            context.psql(f"SELECT pg_drop_replication_slot({row['quoted']})"),
        )
    hidden = context.one("hidden_activity")["others"]
    if hidden:
        yield Finding(
            "transactions",
            "info",
            f"not checked: {hidden} connections of other users, which this user may not see",
            context.grant("GRANT pg_read_all_stats TO {user}"),
        )


CHECKS = (
    Check("indexes", indexes, "all indexes are valid"),
    Check("bloat", bloat, "dead rows are removed"),
    Check("transactions", transactions, "no transaction is old", needs="database"),
)
