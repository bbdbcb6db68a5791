"""Every rule has its section in the runbook, and what a section says to run does run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import psycopg
import pytest

from mailgres.cli import main

DOCS = Path(__file__).parents[2] / "docs"
RUNBOOK = (DOCS / "runbook.md").read_text(encoding="utf-8")
ALERTS = (DOCS / "alerts.md").read_text(encoding="utf-8")
SECTIONS = dict(part.split("\n", 1) for part in re.split(r"^## ", RUNBOOK, flags=re.MULTILINE)[1:])
BLOCK = r"^```{}\n(.*?)^```$"


def blocks(text: str, language: str) -> list[str]:
    return re.findall(BLOCK.format(language), text, re.MULTILINE | re.DOTALL)


def test_each_alert_rule_has_its_section_in_the_runbook(conn: psycopg.Connection) -> None:
    rules = {
        row[0]: row[1] for row in conn.execute("SELECT name, runbook FROM mailgres.alert_rules")
    }
    assert SECTIONS.keys() == rules.keys()
    assert all(link == f"mailgres alerts explain {name}" for name, link in rules.items())


def test_links_to_the_runbook_name_existing_sections() -> None:
    assert set(re.findall(r"\]\((?:runbook\.md)?#(\w+)\)", RUNBOOK + ALERTS)) <= SECTIONS.keys()


def test_the_sql_of_the_runbook_runs(conn: psycopg.Connection) -> None:
    """As an operator, on an empty queue."""
    conn.execute("SET ROLE mailgres_operator")
    found = {name: blocks(text, "sql") for name, text in {**SECTIONS, "alerts.md": ALERTS}.items()}
    assert all(found[name] for name in found if name not in ("quota_90", "database_90"))
    for texts in found.values():
        for text in texts:
            for statement in filter(str.strip, text.split(";\n")):
                conn.execute(statement.encode())


def commands() -> list[str]:
    """Return what stands in blocks, and between backticks."""
    lines = "".join(blocks(RUNBOOK, "sh")).splitlines()
    return sorted({*lines, *re.findall(r"`(mailgres \w[^`]*)`", RUNBOOK)})


@pytest.mark.parametrize("command", commands())
def test_the_commands_of_the_runbook_exist(command: str) -> None:
    program, *words = shlex.split(command)
    assert program == "mailgres"
    found: click.Command | None = main
    context = click.Context(main, info_name="mailgres", **main.context_settings)
    while words and isinstance(found, click.Group):
        word = words.pop(0)
        found = found.get_command(context, word)
        assert found, f"there is no {word}"
    assert found is not None
    options = {name for each in found.params for name in (*each.opts, *each.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= options
