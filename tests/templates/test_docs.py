"""docs/templates.md says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

from mailgres.cli.commands.templates import templates
from mailgres.templates import read_templates
from mailgres.templates.draft import SETTINGS

PAGE = (Path(__file__).parents[2] / "docs" / "templates.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_every_key_and_command_is_there() -> None:
    for key in ("subject", "locale", "template", *SETTINGS):
        assert f"`{key}`" in PAGE or f"`[{key}]`" in PAGE
    for command in templates.commands:
        assert f"mailgres templates {command}" in PAGE


def test_the_example_of_the_page_on_templates_is_a_template(tmp_path: Path) -> None:
    (tmp_path / "receipt.html").write_text(blocks("html")[0], encoding="utf-8")
    (draft,) = read_templates([tmp_path])
    assert draft.settings["required_variables"] == ["name", "total"]


def test_the_sql_of_the_page_on_templates_runs(conn: psycopg.Connection) -> None:
    conn.execute(blocks("sql")[0])
