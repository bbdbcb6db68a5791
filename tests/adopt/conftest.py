"""The ten queues of `shapes/`, each loaded once into a database that tests copy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from support.postgres import GIVEN_URL, Server

SHAPES = Path(__file__).with_name("shapes")
SUPABASE = {"anon", "authenticated", "service_role"}
NAMES = sorted(each.name for each in SHAPES.iterdir() if each.is_dir())


def facts_of(shape: str) -> dict[str, Any]:
    """What a shape says about itself."""
    found: dict[str, Any] = json.loads((SHAPES / shape / "facts.json").read_text(encoding="utf-8"))
    return found


@contextmanager
def _no_role_left(server: Server) -> Iterator[None]:
    """Drop the roles of Supabase that shapes made: a later migration would grant rights to them."""
    with psycopg.connect(server.url, autocommit=True) as admin:
        known = "SELECT rolname FROM pg_roles WHERE rolname = ANY (%s)"
        before = {name for (name,) in admin.execute(known, [list(SUPABASE)])}
        yield
        if not GIVEN_URL:  # otherwise other test runs may use them
            for name in SUPABASE - before:
                admin.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))


@pytest.fixture
def load(server: Server) -> Iterator[Callable[[str], str]]:
    """Load a shape into a database of its own and give its URL."""
    with _no_role_left(server), ExitStack() as databases:

        def load(shape: str) -> str:
            url = databases.enter_context(server.database())
            with server.one_at_a_time(), psycopg.connect(url, autocommit=True) as connection:
                for name in ("schema.sql", "data.sql"):
                    text = (SHAPES / shape / name).read_text(encoding="utf-8")
                    connection.execute(text.encode())
            return url

        yield load


RENAMED = {
    "email_queue": "mail_queue",
    "email_templates": "mail_templates",
    "email_logs": "mail_logs",
}
"""Names of shapes that are ours, too: a database with mailgres has them under other names."""
MOVABLE = [each for each in NAMES if each != "lovable-pgmq"]


def renamed(text: str) -> str:
    """SQL of a shape with names that leave ours free."""
    for old, new in RENAMED.items():
        text = text.replace(old, new)
    return text


@pytest.fixture
def load_beside(server: Server, template: str) -> Iterator[Callable[[str], str]]:
    """Load a shape into a migrated database, under names that are not ours, and give its URL."""
    with ExitStack() as databases:

        def load(shape: str) -> str:
            url = databases.enter_context(server.database(template))
            with server.one_at_a_time(), psycopg.connect(url, autocommit=True) as connection:
                for name in ("schema.sql", "data.sql"):
                    text = (SHAPES / shape / name).read_text(encoding="utf-8")
                    connection.execute(renamed(text).encode())
            return url

        yield load


@pytest.fixture(params=NAMES)
def shape(request: pytest.FixtureRequest) -> str:
    """Each of the shapes."""
    name: str = request.param
    return name
