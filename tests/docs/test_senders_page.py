"""docs/senders.md says what is true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import psycopg

from support.program import Program

PAGE = (Path(__file__).parents[2] / "docs" / "senders.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_blocks_of_the_page_on_senders_run(conn: psycopg.Connection, database_url: str) -> None:
    program = Program(database_url)
    conn.execute("DO $$ BEGIN CREATE ROLE acme_app; EXCEPTION WHEN duplicate_object THEN END $$")
    try:
        for text in blocks("sql"):
            conn.execute(text)
        for text in blocks("console"):
            for line in text.splitlines():
                program(*shlex.split(line.removeprefix("$ mailgres ")))
    finally:
        conn.execute("DROP ROLE IF EXISTS acme_app")


def test_no_block_of_the_page_on_senders_is_left_out() -> None:
    assert set(re.findall(r"^```(\w+)$", PAGE, re.MULTILINE)) == {"console", "sql"}
