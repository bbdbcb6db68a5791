"""docs/upgrading.md: its blocks upgrade a database of the last release, and its errors exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from mailgres import migrate
from support.postgres import find_program
from upgrade.harness import ENQUEUE, Release, last_wheel

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OF_POSTGRESQL = {"canceling statement due to lock timeout", "permission denied"}
"""Its own words for errors."""


def run(block: str, url: str, version: str, directory: Path) -> str:
    """Run a block in a shell; each of its lines has to succeed."""
    with psycopg.connect(url) as connection:
        psql = find_program("psql", connection.info.server_version // 10000)
    programs = (Path(sys.executable).parent, psql.parent, "/usr/bin", "/bin")
    done = subprocess.run(
        ["sh", "-e", "-u", "-c", block],
        env={
            "PATH": os.pathsep.join(map(str, programs)),
            "DATABASE_URL": url,
            "VERSION": version,
            "LC_ALL": "C.UTF-8",
        },
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (block, done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_the_blocks_of_the_page_on_upgrading_upgrade_the_last_release_and_return(
    empty_database_url: str, tmp_path: Path
) -> None:
    release = Release(last_wheel(), tmp_path / "release")
    release.run(empty_database_url, "migrate")
    dry_run, upgrade, by_psql, releases, downgrade = BLOCK.findall(PAGE)
    assert "replace function" in run(dry_run[1], empty_database_url, release.version, tmp_path)
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(ENQUEUE, [3])
        said = run(upgrade[1], empty_database_url, release.version, tmp_path)
        assert "The schema is up to date." in said
        said = run(by_psql[1], empty_database_url, release.version, tmp_path)
        assert "nothing to do" in said
        rows = connection.execute(releases[1].encode()).fetchall()
        assert [row[0] for row in rows if row[3]] != [release.version]
        run(downgrade[1], empty_database_url, release.version, tmp_path)
        assert connection.execute("SELECT count(*) FROM email_queue").fetchone() == (3,)
    found = migrate.status(empty_database_url).release
    assert found
    assert found.version == release.version


def test_every_refusal_on_the_page_on_upgrading_exists_in_the_code() -> None:
    refusals = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    assert len(refusals) == 9
    files = [*ROOT.glob("src/mailgres/schema/*.py"), *ROOT.glob("sql/25_schema/*.sql")]
    files.append(ROOT / "migrations" / "before.sql")
    text = " ".join(path.read_text(encoding="utf-8") for path in files)
    plain = re.sub(r'"\s+f?"', "", text)  # a text that goes on in the next line
    for refusal in refusals:
        for part in filter(None, (part.strip() for part in refusal.split("…"))):
            assert part in plain or part in OF_POSTGRESQL, part
