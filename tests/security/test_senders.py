"""Who may stand in From, and for which tenant a producer may enqueue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from security.conftest import acting_as, forbidden
from support.grants import ANALYST, OPERATOR, PRODUCER, WORKER
from support.postgres import Connect, Server
from support.queue import Queue

NOT_ALLOWED = "MG018"
NOT_ITS_TENANT = "MG019"


def refusal(queue: Queue, **options: Any) -> str | None:
    """The SQLSTATE with which enqueue_email refuses; None: it accepts."""
    try:
        with queue.conn.transaction():
            queue.enqueue(**options)
    except psycopg.Error as error:
        return error.sqlstate
    return None


def allow(queue: Queue, sender: str, tenant: str = "*") -> None:
    queue.run("SELECT mailgres.allow_sender(%s, %s)", tenant, sender)


def bulk(queue: Queue, **fields: Any) -> str | None:
    """The SQLSTATE with which enqueue_emails refuses, which check_emails has to say, too."""
    email = {"template_type": "welcome_user", "recipient_email": "ana@example.com", **fields}
    said = queue.rows("SELECT code FROM mailgres.check_emails(%s)", Jsonb([email]))
    refused = enqueue_many(queue, **fields)
    assert [row.code for row in said] == ([refused] if refused else [])
    return refused


def test_without_a_list_any_sender_is_accepted(queue: Queue) -> None:
    assert refusal(queue, from_email="anyone@anywhere.example") is None


@pytest.mark.parametrize(
    "sender",
    [
        "mail@shop.example",
        "MAIL@Shop.Example",
        "Shop <mail@shop.example>",
        '"Doe, Jane" <jane@shop.example>',
        "one@other.example",
        "mail@xn--bcher-kva.example",
        "mail@bücher.example",
        "Bücher <mail@BÜCHER.example>",
        "mail@a.b.wild.example",
    ],
)
def test_an_allowed_domain_or_address_is_accepted(queue: Queue, sender: str) -> None:
    for allowed in ("Shop.example", "One@other.example", "bücher.example", "*.wild.example"):
        allow(queue, allowed)
    assert refusal(queue, from_email=sender) is None
    assert bulk(queue, from_email=sender) is None


@pytest.mark.parametrize(
    "sender",
    [
        "mail@evil.example",
        "mail@sub.shop.example",
        "mail@notshop.example",
        "mail@shop.example.evil.example",
        "two@other.example",
        "mail@wild.example",
        "mail@notwild.example",
        "mail@shop.example <mail@evil.example>",
        '"mail@shop.example" <mail@evil.example>',
    ],
)
def test_a_sender_that_is_not_allowed_is_refused(queue: Queue, sender: str) -> None:
    for allowed in ("shop.example", "one@other.example", "*.wild.example"):
        allow(queue, allowed)
    assert refusal(queue, from_email=sender) == NOT_ALLOWED
    assert bulk(queue, from_email=sender) == NOT_ALLOWED


def test_the_error_says_what_to_do_and_quotes_no_address(queue: Queue) -> None:
    allow(queue, "shop.example")
    with pytest.raises(psycopg.Error) as raised:
        queue.enqueue(from_email="ana.secret@evil.example")
    said = f"{raised.value.diag.message_primary} {raised.value.diag.message_hint}"
    assert "from_email is not an allowed sender" in said
    assert "mailgres senders allow" in said
    assert "ana.secret" not in said
    assert "evil" not in said


def test_a_tenants_own_list_replaces_the_default_one(queue: Queue) -> None:
    allow(queue, "house.example")
    allow(queue, "acme.example", "acme")
    assert refusal(queue, tenant_id="acme", from_email="a@acme.example") is None
    assert refusal(queue, tenant_id="acme", from_email="a@house.example") == NOT_ALLOWED
    assert refusal(queue, tenant_id="other", from_email="a@house.example") is None
    assert refusal(queue, tenant_id="other", from_email="a@acme.example") == NOT_ALLOWED


def test_a_list_of_one_tenant_leaves_the_others_as_they_are(queue: Queue) -> None:
    allow(queue, "acme.example", "acme")
    assert refusal(queue, tenant_id="other", from_email="a@anywhere.example") is None


def test_an_email_without_a_sender_of_its_own_needs_no_permission(queue: Queue) -> None:
    allow(queue, "shop.example")
    assert refusal(queue) is None
    assert bulk(queue) is None


def test_disallowing_the_last_sender_opens_the_list_again(queue: Queue) -> None:
    allow(queue, "shop.example")
    assert queue.value("SELECT mailgres.disallow_sender('*', 'SHOP.example')") is True
    assert queue.value("SELECT mailgres.disallow_sender('*', 'shop.example')") is False
    assert refusal(queue, from_email="a@anywhere.example") is None


@pytest.mark.parametrize(
    "sender", ["", "shop", "@shop.example", "*", "*.", "a b.example", "Shop <a@shop.example>", None]
)
def test_a_sender_that_is_neither_domain_nor_address_is_not_listed(
    queue: Queue, sender: str | None
) -> None:
    with pytest.raises(psycopg.Error) as raised:
        queue.run("SELECT mailgres.allow_sender('*', %s)", sender)
    assert raised.value.sqlstate == "MG075"


# Bound producers


def new_role(queue: Queue, *groups: str, login: str = "LOGIN") -> str:
    name = f"app_{uuid4().hex[:12]}"
    queue.run(f"CREATE ROLE {name} {login}")
    for group in groups:
        queue.run(f"GRANT {group} TO {name}")
    return name


def bind(queue: Queue, role: str, tenant: str) -> None:
    queue.run("SELECT mailgres.bind_producer(%s, %s)", role, tenant)


@contextmanager
def session_of(queue: Queue, role: str) -> Iterator[None]:
    """Act as another user, as if after its login."""
    queue.run(f"SET LOCAL SESSION AUTHORIZATION {role}")
    yield
    queue.run("RESET SESSION AUTHORIZATION")


def tenants(queue: Queue) -> list[str]:
    rows = queue.rows("SELECT tenant_id FROM email_queue ORDER BY created_at, id")
    return [row.tenant_id for row in rows]


def producer(queue: Queue, tenant: str = "acme") -> str:
    role = new_role(queue, PRODUCER)
    bind(queue, role, tenant)
    return role


def enqueue_many(queue: Queue, **fields: Any) -> str | None:
    email = {"template_type": "welcome_user", "recipient_email": "ana@example.com", **fields}
    try:
        with queue.conn.transaction():
            queue.run("SELECT enqueue_emails(%s)", Jsonb([email]))
    except psycopg.Error as error:
        return error.sqlstate
    return None


def test_a_bound_producer_enqueues_for_its_tenant_without_naming_it(queue: Queue) -> None:
    with session_of(queue, producer(queue)):
        assert refusal(queue) is None
        assert refusal(queue, tenant_id="acme") is None
        assert refusal(queue, tenant_id="default") is None
        assert enqueue_many(queue) is None
        assert enqueue_many(queue, tenant_id="acme") is None
        assert enqueue_many(queue, tenant_id="default") is None
    assert tenants(queue) == ["acme"] * 6


@pytest.mark.parametrize("tenant", ["other", "ACME", "acme ", "*", "", None])
def test_a_bound_producer_is_refused_another_tenant(queue: Queue, tenant: str | None) -> None:
    with session_of(queue, producer(queue)):
        assert refusal(queue, tenant_id=tenant) == NOT_ITS_TENANT
        assert enqueue_many(queue, tenant_id=tenant) == NOT_ITS_TENANT
    assert tenants(queue) == []


def test_one_email_of_another_tenant_among_many_refuses_all(queue: Queue) -> None:
    emails = [
        {"template_type": "welcome_user", "recipient_email": "ana@example.com", **more}
        for more in ({}, {"tenant_id": "other"}, {})
    ]
    with (
        session_of(queue, producer(queue)),
        pytest.raises(psycopg.Error) as raised,
        queue.conn.transaction(),
    ):
        queue.run("SELECT enqueue_emails(%s)", Jsonb(emails))
    assert raised.value.sqlstate == NOT_ITS_TENANT
    assert "element 1" in str(raised.value.diag.message_primary)
    queue.run("RESET SESSION AUTHORIZATION")
    assert tenants(queue) == []


def test_a_bound_producers_senders_are_its_tenants(queue: Queue) -> None:
    allow(queue, "acme.example", "acme")
    with session_of(queue, producer(queue)):
        assert refusal(queue, from_email="a@acme.example") is None
        assert refusal(queue, from_email="a@anywhere.example") == NOT_ALLOWED
        assert enqueue_many(queue, from_email="a@anywhere.example") == NOT_ALLOWED


def test_a_bound_producers_emails_take_the_route_of_its_tenant(queue: Queue) -> None:
    queue.run("INSERT INTO mailgres.routes (route) VALUES ('special')")
    queue.run("SELECT mailgres.set_tenant('acme', '{\"route\": \"special\"}')")
    with session_of(queue, producer(queue)):
        queue.enqueue()
        assert enqueue_many(queue) is None
    assert {row.route for row in queue.rows("SELECT route FROM email_queue")} == {"special"}


def test_a_bound_producers_keys_are_those_of_its_tenant(queue: Queue) -> None:
    with session_of(queue, producer(queue)):
        first = queue.enqueue(idempotency_key="k")
        assert queue.enqueue(idempotency_key="k") == first
        assert refusal(queue, idempotency_key="k", recipient_email="bea@example.com") == "MG009"
        again = {"template_type": "welcome_user", "recipient_email": "ana@example.com"}
        row = queue.value("SELECT enqueue_emails(%s)", Jsonb([{**again, "idempotency_key": "k"}]))
        assert row == first
    assert tenants(queue) == ["acme"]


@pytest.mark.parametrize("change", ["SET LOCAL ROLE", "SET LOCAL ROLE none; SET LOCAL ROLE"])
def test_a_bound_producer_does_not_escape_by_another_role(queue: Queue, change: str) -> None:
    with session_of(queue, producer(queue)):
        queue.run(f"{change} {PRODUCER}")
        assert refusal(queue, tenant_id="other") == NOT_ITS_TENANT
        assert refusal(queue) is None
        queue.run("RESET ROLE")
        assert refusal(queue, tenant_id="other") == NOT_ITS_TENANT
    assert tenants(queue) == ["acme"]


ENQUEUE_FOR_ANOTHER = (
    "SELECT enqueue_email(NULL, 'welcome_user', 'a@example.com', p_tenant_id => 'other')"
)


@pytest.fixture
def logged_in(server: Server, connect: Connect, database_url: str) -> Iterator[psycopg.Connection]:
    """A connection of a producer that is bound to acme, by a login of its own."""
    with server.role() as name:
        admin = connect()
        admin.execute(f"ALTER ROLE {name} LOGIN PASSWORD 'x'")
        admin.execute(f"GRANT {PRODUCER} TO {name}")
        admin.execute("SELECT mailgres.bind_producer(%s, 'acme')", [name])
        parts = urlsplit(database_url)
        place = f"{name}:x@{parts.hostname}:{parts.port}"
        with psycopg.connect(parts._replace(netloc=place).geturl(), autocommit=True) as connection:
            yield connection


@pytest.mark.parametrize(
    "change",
    [
        "SELECT 1",
        f"SET SESSION AUTHORIZATION {PRODUCER}",
        "SET SESSION AUTHORIZATION DEFAULT",
        f"SET ROLE {PRODUCER}",
        "SET ROLE none",
        "RESET ROLE",
        "RESET ALL",
        "DISCARD ALL",
        f"SELECT set_config('role', '{PRODUCER}', false)",
        f"SELECT set_config('session_authorization', '{PRODUCER}', false)",
    ],
)
def test_a_bound_login_does_not_escape(logged_in: psycopg.Connection, change: str) -> None:
    with suppress(psycopg.errors.InsufficientPrivilege):
        logged_in.execute(change)
    with pytest.raises(psycopg.Error) as raised:
        logged_in.execute(ENQUEUE_FOR_ANOTHER)
    assert raised.value.sqlstate == NOT_ITS_TENANT


def test_a_role_that_postgrest_switches_to_is_bound(queue: Queue) -> None:
    """One login for all; the role of each request is set for its transaction."""
    acme, free = (new_role(queue, PRODUCER, login="NOLOGIN") for _ in range(2))
    authenticator = new_role(queue, acme, free, login="LOGIN NOINHERIT")
    bind(queue, acme, "acme")
    with session_of(queue, authenticator):
        queue.run(f"SET LOCAL ROLE {acme}")
        assert refusal(queue, tenant_id="other") == NOT_ITS_TENANT
        assert refusal(queue) is None
        queue.run(f"SET LOCAL ROLE {free}")
        assert refusal(queue, tenant_id="other") is None
        queue.run("RESET ROLE")
        assert refusal(queue, tenant_id="other") == "42501", "the login itself has no privilege"
    assert tenants(queue) == ["acme", "other"]


def test_roles_bound_to_two_tenants_at_once_enqueue_for_neither(queue: Queue) -> None:
    globex = producer(queue, "globex")
    acme = new_role(queue, globex)
    bind(queue, acme, "acme")
    with session_of(queue, acme):
        queue.run(f"SET LOCAL ROLE {globex}")
        for tenant in ("acme", "globex", "default", "other"):
            assert refusal(queue, tenant_id=tenant) == NOT_ITS_TENANT
            assert enqueue_many(queue, tenant_id=tenant) == NOT_ITS_TENANT
    assert tenants(queue) == []


def test_a_security_definer_function_of_another_owner_does_not_free_a_bound_producer(
    queue: Queue,
) -> None:
    role = producer(queue)
    queue.run(
        "CREATE FUNCTION public.on_behalf() RETURNS uuid LANGUAGE sql SECURITY DEFINER"
        f" AS $$ {ENQUEUE_FOR_ANOTHER} $$"
    )
    with session_of(queue, role), pytest.raises(psycopg.Error) as raised, queue.conn.transaction():
        queue.run("SELECT public.on_behalf()")
    assert raised.value.sqlstate == NOT_ITS_TENANT


def test_a_role_is_bound_anew_and_unbound(queue: Queue) -> None:
    role = producer(queue, "acme")
    bind(queue, role, "globex")
    with session_of(queue, role):
        assert refusal(queue, tenant_id="acme") == NOT_ITS_TENANT
        assert refusal(queue) is None
    assert queue.value("SELECT mailgres.unbind_producer(%s)", role) is True
    assert queue.value("SELECT mailgres.unbind_producer(%s)", role) is False
    with session_of(queue, role):
        assert refusal(queue, tenant_id="acme") is None
    assert tenants(queue) == ["globex", "acme"]


@pytest.mark.parametrize(
    ("role", "tenant", "sqlstate"),
    [
        ("no_such_role", "acme", "MG076"),
        (None, "acme", "MG076"),
        ("none", "acme", "MG076"),
        (PRODUCER, "", "MG013"),
        (PRODUCER, None, "MG013"),
        (PRODUCER, "x" * 201, "MG013"),
        (PRODUCER, "*", "MG013"),
    ],
)
def test_only_a_role_that_exists_is_bound_to_one_tenant(
    queue: Queue, role: str | None, tenant: str | None, sqlstate: str
) -> None:
    with pytest.raises(psycopg.Error) as raised:
        queue.run("SELECT mailgres.bind_producer(%s, %s)", role, tenant)
    assert raised.value.sqlstate == sqlstate


ORDERS = (
    "SELECT mailgres.allow_sender('acme', 'acme.example')",
    "SELECT mailgres.disallow_sender('acme', 'acme.example')",
    f"SELECT mailgres.bind_producer('{PRODUCER}', 'acme')",
    f"SELECT mailgres.unbind_producer('{PRODUCER}')",
    "SELECT count(*) FROM mailgres.senders",
    "SELECT count(*) FROM mailgres.producers",
)


@pytest.mark.parametrize("order", ORDERS)
def test_only_operators_decide_about_senders_and_producers(queue: Queue, order: str) -> None:
    with acting_as(queue, OPERATOR):
        queue.run(order)
    for role in (PRODUCER, WORKER, ANALYST):
        assert forbidden(queue, role, order)
