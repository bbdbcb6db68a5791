"""What docs/guest.md says to run does run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import psycopg

from guest import archives
from support.program import PROGRAM

PAGE = (Path(__file__).parents[2] / "docs" / "guest.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_sql_of_the_page_on_guests_runs(conn: psycopg.Connection) -> None:
    assert blocks("sql")
    for block in blocks("sql"):
        conn.execute(block.encode())


def test_the_commands_of_the_page_on_guests_run(
    database_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    """In a row, as one who restores types them."""
    programs = Path(archives.program("pg_dump", archives.server_major(database_url))).parent
    environment = {
        "PATH": f"{programs}:{PROGRAM.parent}:{os.environ['PATH']}",
        "DATABASE_URL": database_url,
        "NEW_DATABASE_URL": empty_database_url,
        "LC_ALL": "C.UTF-8",
    }
    for block in blocks("sh"):
        done = subprocess.run(
            ["/bin/sh", "-e", "-c", block],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
