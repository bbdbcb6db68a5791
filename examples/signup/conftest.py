"""The application in its tests: its own tables, its templates, and a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import app as application
import psycopg
import pytest
from fastapi.testclient import TestClient


@pytest.fixture(scope="session")
def mailgres_prepare() -> Callable[[str], None]:
    """Make the application's own tables, once, in the database that all tests get a copy of."""

    def prepare(url: str) -> None:
        with psycopg.connect(url) as connection:
            connection.execute(application.SCHEMA)

    return prepare


@pytest.fixture(scope="session")
def mailgres_settings() -> Mapping[str, str]:
    """The settings that the worker has in production."""
    return {"from_email": "The shop <hello@shop.example.com>"}


@pytest.fixture
def client(mailgres_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A client of the application, on the database of the test."""
    monkeypatch.setenv("DATABASE_URL", mailgres_database)
    with TestClient(application.app) as opened:
        yield opened
