"""Enqueuing an email prepares no check of a column that it leaves empty."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

ROOT = Path(__file__).parents[2]
EMPTY_DOMAINS = """
    SELECT a.attname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = 'email_queue'::regclass AND t.typtype = 'd'
      AND NOT a.attnotnull AND NOT a.atthasdef
"""


def test_the_short_insert_names_every_column_whose_check_it_need_not_prepare(
    conn: psycopg.Connection,
) -> None:
    """A column of a domain that an INSERT does not name costs as much as one that it sets."""
    text = (ROOT / "sql/40_api/40_enqueue_email.sql").read_text(encoding="utf-8")
    short = text[text.index("IF NOT v_options THEN") : text.index("IF v_options THEN")]
    names = {name for (name,) in conn.execute(EMPTY_DOMAINS)}
    assert names
    assert {name for name in names if f"v_none.{name}" not in short} == set()
