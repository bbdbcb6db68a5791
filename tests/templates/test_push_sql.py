"""push_template and retire_template, as SQL."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from mailgres.errors import TemplateFailed
from mailgres.templates import TemplateCache, load_contents
from support.concurrency import at_once
from support.postgres import Connect

ONE = {"en": {"subject": "Hi {{ name }}", "html": "<p>1</p>", "text": "1"}}
TWO = {"en": {"subject": "Hi", "text": "2"}, "pt": {"subject": "Oi", "html": None, "text": "dois"}}


def push(
    conn: psycopg.Connection, contents: object, /, name: Any = "receipt", **settings: Any
) -> int:
    query = "SELECT mailgres.push_template(%s, %s, %s)"
    row = conn.execute(query, (name, Jsonb(contents), Jsonb(settings))).fetchone()
    assert row is not None
    return int(row[0])


def versions(conn: psycopg.Connection, name: str = "receipt") -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT version, locale, subject, html, text, is_default FROM mailgres.template_versions"
        " WHERE template_type = %s ORDER BY 1, 2",
        (name,),
    ).fetchall()


def template(conn: psycopg.Connection, name: str = "receipt") -> dict[str, Any]:
    query = "SELECT to_jsonb(t) FROM email_templates t WHERE template_type = %s"
    row = conn.execute(query, (name,)).fetchone()
    assert row is not None
    found: dict[str, Any] = row[0]
    return found


def test_push_template_creates_a_new_version(conn: psycopg.Connection) -> None:
    assert push(conn, ONE) == 1
    assert push(conn, TWO) == 2
    assert versions(conn) == [
        (1, "en", "Hi {{ name }}", "<p>1</p>", "1", True),
        (2, "en", "Hi", None, "2", True),
        (2, "pt", "Oi", None, "dois", False),
    ]
    assert template(conn)["active_version"] == 2
    assert push(conn, ONE) == 3


def test_pushing_the_same_template_again_changes_nothing(conn: psycopg.Connection) -> None:
    push(conn, ONE, description="d")
    before = template(conn), versions(conn)
    assert push(conn, ONE, description="d") == 1
    with_space = {"en": {"subject": "Hi {{ name }} ", "html": "<p>1</p>\r\n", "text": "1\n\n"}}
    assert push(conn, with_space) == 1
    assert (template(conn), versions(conn)) == before


def test_push_template_stores_settings(conn: psycopg.Connection) -> None:
    settings: dict[str, Any] = {
        "description": "A receipt",
        "required_variables": ["name"],
        "from_email": "Acme <mail@example.com>",
        "reply_to": "help@example.com",
        "route": "default",
        "priority": 2,
        "retry_policy": "patient",
        "expires_after": "02:00:00",
        "on_uncertain": "resend",
        "sample": {"name": "Ana"},
    }
    push(conn, ONE, **settings)
    assert template(conn).items() >= settings.items()
    # What is not named stays, null sets the default, and neither makes a version.
    assert push(conn, ONE, priority=None, on_uncertain=None, required_variables=None) == 1
    changed: dict[str, Any] = {"priority": None, "on_uncertain": "hold", "required_variables": []}
    assert template(conn).items() >= (settings | changed).items()


def test_required_variables_are_checked_at_enqueue(conn: psycopg.Connection) -> None:
    push(conn, ONE, required_variables=["name"])
    with pytest.raises(psycopg.Error, match="lacks 'name'"):
        conn.execute("SELECT enqueue_email(NULL, 'receipt', 'ana@example.com')")


def test_a_retired_template_can_be_pushed_again(conn: psycopg.Connection) -> None:
    push(conn, ONE)
    retire = "SELECT mailgres.retire_template('receipt')"
    assert conn.execute(retire).fetchone() == (True,)
    assert conn.execute(retire).fetchone() == (False,)
    with pytest.raises(psycopg.Error, match="there is no template 'receipt'"):
        conn.execute("SELECT enqueue_email(NULL, 'receipt', 'ana@example.com')")
    assert push(conn, ONE) == 1
    assert template(conn)["retired_at"] is None
    with pytest.raises(psycopg.Error, match="there is no template 'nonsense'") as caught:
        conn.execute("SELECT mailgres.retire_template('nonsense')")
    assert caught.value.sqlstate == "MG001"


@pytest.mark.parametrize(
    ("contents", "settings", "said"),
    [
        (None, {}, "not an object with a locale"),
        ({}, {}, "not an object with a locale"),
        ([], {}, "not an object with a locale"),
        ({"english": {}}, {}, "'english' is for no locale"),
        ({"en": "Hi"}, {}, "'en' is not an object"),
        (
            {"en": {"subject": "a", "text": "b", "body": "c"}},
            {},
            "more than subject, html and text",
        ),
        ({"en": {"subject": 1, "text": "b"}}, {}, "not a string"),
        ({"en": {"text": "b"}}, {}, "has no subject"),
        ({"en": {"subject": " \n", "text": "b"}}, {}, "has no subject"),
        ({"en": {"subject": "a\nb", "text": "b"}}, {}, "subject of several lines"),
        ({"en": {"subject": "a", "html": "b"}}, {}, "has no text"),
        ({"en": {"subject": "a", "text": "b" * 600_000}}, {}, "is too long"),
        (ONE, {"nonsense": 1}, "unknown key"),
        (ONE, {"priority": 10}, "priority is not"),
        (ONE, {"priority": "high"}, "wrong type"),
        (ONE, {"route": "nowhere"}, "there is no route 'nowhere'"),
        (ONE, {"retry_policy": "never"}, "there is no retry policy 'never'"),
        (ONE, {"from_email": "nobody"}, "from_email is not"),
        (ONE, {"reply_to": "a@example.com\nBcc: b@example.com"}, "reply_to is not"),
        (ONE, {"expires_after": "-1 day"}, "expires_after is not"),
        (ONE, {"expires_after": "soon"}, "wrong type"),
        (ONE, {"on_uncertain": "guess"}, "on_uncertain is"),
        (ONE, {"required_variables": [None]}, "holds a null"),
        (ONE, {"sample": []}, "sample is not an object"),
    ],
)
def test_push_template_refuses_bad_contents_and_stores_nothing(
    conn: psycopg.Connection, contents: object, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(psycopg.Error, match=said) as caught:
        push(conn, contents, **settings)
    assert caught.value.sqlstate == "MG060"
    assert caught.value.diag.message_hint
    assert versions(conn) == []
    assert conn.execute("SELECT count(*) FROM email_templates").fetchone() == (3,)


@pytest.mark.parametrize("name", ["", "a b", "-a", "a" * 101, "a/b", None])
def test_push_template_refuses_bad_names(conn: psycopg.Connection, name: Any) -> None:
    with pytest.raises(psycopg.Error, match="a name has letters") as caught:
        push(conn, ONE, name)
    assert caught.value.sqlstate == "MG060"


def test_push_template_chooses_the_default_language(conn: psycopg.Connection) -> None:
    query = "SELECT mailgres.push_template('receipt', %s, p_default_locale => %s)"
    part = {"subject": "a", "text": "b"}
    for locales, wanted, default in (
        (("de", "en"), None, "en"),
        (("de", "fr"), None, "de"),
        (("de", "en"), "de", "de"),
    ):
        conn.execute(query, (Jsonb(dict.fromkeys(locales, part)), wanted))
        latest = max(row[0] for row in versions(conn))
        assert [r[1] for r in versions(conn) if r[0] == latest and r[5]] == [default]
    with pytest.raises(psycopg.Error, match="no content for the default locale 'it'"):
        conn.execute(query, (Jsonb({"en": part}), "it"))


@pytest.mark.parametrize(
    "statement",
    ["UPDATE {} SET text = 'x'", "DELETE FROM {}", "TRUNCATE {}"],
)
def test_a_template_version_cannot_be_changed(conn: psycopg.Connection, statement: str) -> None:
    push(conn, ONE)
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(statement.format("mailgres.template_versions"))
    assert caught.value.sqlstate == "MG040"


def test_an_email_keeps_the_template_version_of_its_first_attempt(conn: psycopg.Connection) -> None:
    push(conn, ONE)
    conn.execute("SELECT enqueue_email(NULL, 'receipt', 'ana@example.com', '{\"name\": \"Ana\"}')")
    cache = TemplateCache(lambda name, version: load_contents(conn, name, version))

    def try_once() -> str:
        row = conn.execute(
            "SELECT template_type, template_version, payload, id, lease_token"
            " FROM mailgres.claim('w')"
        ).fetchone()
        assert row is not None
        conn.execute("SELECT mailgres.give_back(%s, ARRAY[%s])", (row[4], row[3]))
        return cache.render(*row[:3]).subject

    assert try_once() == "Hi Ana"
    push(conn, TWO)
    assert try_once() == "Hi Ana"
    conn.execute("SELECT mailgres.retire_template('receipt')")
    assert try_once() == "Hi Ana"


def test_concurrent_pushes_number_versions_without_gaps(connect: Connect) -> None:
    connections = [connect() for _ in range(6)]

    def content(number: int) -> dict[str, Any]:
        return {"en": {"subject": "Hi", "text": f"text {number // 2}"}}

    found = at_once(
        [partial(push, conn, content(number)) for number, conn in enumerate(connections)]
    )
    written = sorted({row[0] for row in versions(connections[0])})
    assert written == list(range(1, len(written) + 1))
    assert 3 <= len(written) <= 6
    assert set(found) <= set(written)
    assert template(connections[0])["active_version"] == written[-1]


def test_the_operator_role_may_push_templates(conn: psycopg.Connection) -> None:
    conn.execute("SET ROLE mailgres_operator")
    assert push(conn, ONE) == 1
    with pytest.raises(psycopg.Error, match="no subject"):
        push(conn, {"en": {"text": "x"}})
    conn.execute("SELECT mailgres.retire_template('receipt')")
    conn.execute("SET ROLE mailgres_worker")
    assert load_contents(conn, "receipt", 1)["en"].text == "1"
    assert load_contents(conn, "receipt", 9) == {}
    for call in ("push_template('a', '{}')", "retire_template('receipt')"):
        with pytest.raises(errors.InsufficientPrivilege):
            conn.execute(f"SELECT mailgres.{call}")


def test_a_payload_too_deep_for_python_is_rendered_from_its_text(conn: psycopg.Connection) -> None:
    """psycopg cannot load such a payload, so a worker takes it as text."""
    deep = f'{{"v":{"[" * 3000}{"]" * 3000}}}'
    conn.execute(
        "SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com', %s::jsonb)", (deep,)
    )
    row = conn.execute("SELECT payload::text FROM email_queue").fetchone()
    assert row is not None
    cache = TemplateCache(lambda name, version: load_contents(conn, name, version))
    with pytest.raises(TemplateFailed, match="nested more than 64 levels"):
        cache.render("welcome_user", 1, row[0])
