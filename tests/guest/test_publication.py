"""Publishing all tables of the database stops nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg

from guest.story_run import StoryRun
from support.queue import Queue

WITHOUT_IDENTITY = """
    SELECT c.oid::regclass::text AS name
    FROM pg_class c
    WHERE c.relkind IN ('r', 'p')
      AND c.relnamespace IN ('public'::regnamespace, 'mailgres'::regnamespace)
      AND NOT CASE c.relreplident
          WHEN 'f' THEN true
          WHEN 'i' THEN EXISTS (
              SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident)
          WHEN 'd' THEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
          ELSE false END
"""


def test_every_table_has_a_replica_identity(queue: Queue) -> None:
    """Also the one in which the migrations are noted."""
    assert queue.value("SELECT to_regclass('mailgres.schema_version') IS NOT NULL")
    assert [row.name for row in queue.rows(WITHOUT_IDENTITY)] == []


def test_a_publication_of_all_tables_stops_nothing(
    database_url: str, conn: psycopg.Connection
) -> None:
    """Enqueuing, claiming, finishing, folding, all janitors, every call of an operator."""
    conn.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    stage = StoryRun(
        database_url, {}, datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    )
    stage.run()
    conn.execute("SELECT mailgres.fold_rollups()")
    for table in ("mailgres.rollup_deltas", "mailgres.attempt_deltas"):
        assert conn.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    conn.execute("TRUNCATE email_queue, mailgres.attachments")
