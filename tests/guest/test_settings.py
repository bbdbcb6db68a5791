"""No setting of a session changes what mailgres does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

import mailgres
from guest.sessions import SETTINGS, STORY
from guest.story_run import Reported, StoryRun
from support.postgres import Server

CALLABLE = """
    SELECT DISTINCT n.nspname || '.' || p.proname
    FROM pg_proc p
    JOIN pg_namespace n ON n.oid = p.pronamespace
    JOIN pg_roles r ON r.rolname LIKE 'mailgres\\_%'
    WHERE n.nspname IN ('public', 'mailgres') AND p.prorettype <> 'trigger'::regtype
      AND r.rolname IN ('mailgres_producer', 'mailgres_worker', 'mailgres_operator')
      AND has_function_privilege(r.oid, p.oid, 'EXECUTE')
"""


@pytest.fixture(scope="module")
def now() -> datetime:
    """One time for all, after the start of the server, which reap asks about."""
    return datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)


@pytest.fixture(scope="module")
def expected(server: Server, template: str, now: datetime) -> Iterator[Reported]:
    """Yield what the story tells with the settings that a server is born with."""
    with server.database(template) as url:
        yield StoryRun(url, {}, now).run()


def test_every_function_that_a_role_may_call_is_in_the_story(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        callable_names = {name for (name,) in connection.execute(CALLABLE)}
    text = " ".join(call.sql for call in STORY)
    assert {name for name in callable_names if f"{name}(" not in text} == set()


@pytest.mark.parametrize("name", SETTINGS)
def test_no_session_setting_changes_a_result(
    name: str, database_url: str, now: datetime, expected: Reported
) -> None:
    reported = StoryRun(database_url, SETTINGS[name], now).run()
    for part, content in expected.items():
        assert reported[part] == content, part


STRINGS = re.compile(r"(\w?)'((?:[^']|'')*)'")


def test_no_function_body_has_a_backslash_in_a_plain_string(database_url: str) -> None:
    """Bodies are parsed when they run: standard_conforming_strings of the session decides."""
    query = """SELECT p.oid::regprocedure::text, p.prosrc FROM pg_proc p
               WHERE p.pronamespace IN ('public'::regnamespace, 'mailgres'::regnamespace)
                 AND p.prosqlbody IS NULL"""
    with psycopg.connect(database_url) as connection:
        bodies = connection.execute(query).fetchall()
    wrong = {
        name
        for name, body in bodies
        for prefix, text in STRINGS.findall(re.sub(r"--[^\n]*", "", body))
        if "\\" in text and prefix.upper() != "E"
    }
    assert wrong == set()


@pytest.mark.parametrize(
    "path", sorted(Path(mailgres.__file__).parent.rglob("*.sql")), ids=lambda path: path.name
)
def test_no_query_of_ours_has_a_backslash_in_a_plain_string(path: Path) -> None:
    text = re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8"))
    wrong = [string for prefix, string in STRINGS.findall(text) if "\\" in string and prefix != "E"]
    assert wrong == []
