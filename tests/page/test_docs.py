"""docs/page.md: its blocks run, and it names every setting of the page."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mailgres import page
from mailgres.settings.model import DEFINITIONS
from support.queue import Queue

PAGE = Path(__file__).parents[2] / "docs/page.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_example_application_of_the_page_signs_people_in_by_its_own_rules() -> None:
    (block,) = blocks("python")
    found: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), found)  # noqa: S102 - the page's own example
    assert isinstance(found["queue"], page.Page)
    for account, role in (
        (None, None),
        ({"email": "vic@example.com", "is_admin": False}, page.Role.VIEWER),
        ({"email": "ana@example.com", "is_admin": True}, page.Role.OPERATOR),
    ):
        request = SimpleNamespace(session={"account": account})
        user = asyncio.run(found["who"](request))
        assert (user.role if user else None) == role
    found["queue"].close()


def test_the_grant_that_page_md_shows_is_enough(queue: Queue) -> None:
    grant, _ = blocks("sql")
    queue.run("CREATE ROLE page_docs CREATEROLE")
    try:
        queue.run("GRANT mailgres_operator, mailgres_analyst TO page_docs WITH ADMIN OPTION")
        queue.run("SET ROLE page_docs")
        queue.run(grant)
    finally:
        queue.run("RESET ROLE")
        queue.run("DROP ROLE page_docs")


def test_the_dry_run_that_page_md_shows_counts_emails(queue: Queue) -> None:
    _, preview = blocks("sql")
    queue.enqueue("newsletter", subject="Hi", text="Hello")
    assert [(row.code, row.emails) for row in queue.rows(preview)] == [(None, 1)]


def test_page_md_names_every_setting_of_the_page() -> None:
    text = PAGE.read_text()
    for name, each in DEFINITIONS.items():
        if name.startswith("page_"):
            assert f"`{each.variables[0]}`" in text
