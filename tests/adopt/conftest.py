"""The ten queues of `shapes/`, each loaded once into a database that tests copy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.postgres import Server

SHAPES = Path(__file__).with_name("shapes")
NAMES = sorted(each.name for each in SHAPES.iterdir() if each.is_dir())


def facts_of(shape: str) -> dict[str, Any]:
    """What a shape says about itself."""
    found: dict[str, Any] = json.loads((SHAPES / shape / "facts.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def load(server: Server) -> Iterator[Callable[[str], str]]:
    """Load a shape into a database of its own and give its URL."""
    with ExitStack() as databases:

        def load(shape: str) -> str:
            url = databases.enter_context(server.database())
            with server.one_at_a_time(), psycopg.connect(url, autocommit=True) as connection:
                for name in ("schema.sql", "data.sql"):
                    text = (SHAPES / shape / name).read_text(encoding="utf-8")
                    connection.execute(text.encode())
            return url

        yield load


@pytest.fixture(params=NAMES)
def shape(request: pytest.FixtureRequest) -> str:
    """Each of the shapes."""
    name: str = request.param
    return name
