"""Ids of emails have the order of enqueuing."""

from __future__ import annotations

import psycopg

# Many: a clock that is asked twice for one id puts about one id in 7,000 out of order. Only the
# times are compared: the rest of an id is random, and a fast machine makes two in a microsecond.
IDS = """
    WITH made AS MATERIALIZED (
        SELECT n, mailgres.uuid_v7() AS id FROM generate_series(1, 100000) n
    )
    SELECT count(*) FILTER (WHERE left(id::text, 18) < left(before::text, 18)),
           bool_and(id::text ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab]')
    FROM (SELECT id, lag(id) OVER (ORDER BY n) AS before FROM made) x
"""


def test_ids_keep_the_order_in_which_they_were_made(conn: psycopg.Connection) -> None:
    assert conn.execute(IDS).fetchone() == (0, True)
