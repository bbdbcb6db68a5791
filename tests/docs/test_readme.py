"""Every block of the README runs, and says what the README says it says."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from mailgres import resources

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
KNOWN_COMMANDS = {
    "make demo",
    "make test",
    "pip install .",
    "export DATABASE_URL=postgresql://…",
    "mailgres migrate",
    "mailgres process --until-empty",
    "mailgres retry --template welcome_user --since 24h --dry-run",
    "mailgres status",
    "mailgres worker",
}


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


@pytest.mark.parametrize("page", ["README.md", "docs/doctor.md", "docs/http.md"])
def test_examples_of_output_have_the_newest_revision(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(re.findall(r"\b\d{4}_[a-z][a-z0-9_]+", text)) == {resources.schema_revision()}


def test_readme_sql_blocks_run(conn: psycopg.Connection) -> None:
    refused: list[str] = []
    for text in blocks("sql"):
        try:
            conn.execute(text)
        except psycopg.Error as error:
            refused.append(
                f"ERROR:  {error.diag.message_primary}\nHINT:  {error.diag.message_hint}\n"
            )
    assert refused == blocks("text"), "what is refused is what the README shows as refused"
    count = conn.execute("SELECT count(*) FROM email_queue").fetchone()
    assert count == (2,)


def test_the_readme_has_at_most_200_lines() -> None:
    assert README.count("\n") <= 200


@pytest.mark.parametrize("text", blocks("python"))
def test_readme_python_blocks_run(conn: psycopg.Connection, database_url: str, text: str) -> None:
    exec(compile(text, "README.md", "exec"), {"DATABASE_URL": database_url})  # noqa: S102
    count = conn.execute("SELECT count(*) FROM email_queue").fetchone()
    assert count == (4,)


def test_the_commands_of_the_readme_are_tested_elsewhere() -> None:
    shown = {
        line.removeprefix("$ ")
        for text in blocks("console")
        for line in text.splitlines()
        if line.startswith("$ ")
    }
    assert shown == KNOWN_COMMANDS


def test_the_variables_of_the_readme_are_those_of_the_tested_page() -> None:
    page = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
    assert all(text in page for text in blocks("sh"))


def test_every_block_of_the_readme_is_tested() -> None:
    assert {kind for kind, _ in BLOCKS} == {"sql", "python", "console", "text", "sh"}
