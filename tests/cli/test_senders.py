"""`mailgres senders` and `mailgres producers`, run as programs."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest

from support.postgres import Server
from support.program import Program
from support.queue import Clock, Queue

DRY = "Nothing was changed: this was a dry run."


def test_senders_are_allowed_listed_and_disallowed(mailgres: Program, queue: Queue) -> None:
    Clock(queue.conn, datetime(2026, 11, 16, 18, 44, tzinfo=UTC))
    assert mailgres.run("senders", "list").stderr == "No list: any sender is accepted.\n"
    said = mailgres("senders", "allow", "Example.com", "example.com", "bücher.example")
    assert said == "default: 2 added, 1 known before\n"
    mailgres("senders", "allow", "news@acme.example", "*.acme.example", "--tenant", "acme")
    assert mailgres("senders", "list").splitlines() == [
        "tenant   sender                 since",
        "default  example.com            2026-11-16 18:44:00 UTC",
        "default  xn--bcher-kva.example  2026-11-16 18:44:00 UTC",
        "acme     *.acme.example         2026-11-16 18:44:00 UTC",
        "acme     news@acme.example      2026-11-16 18:44:00 UTC",
    ]
    listed = mailgres.json("senders", "list", "--tenant", "acme")
    assert [one["sender"] for one in listed] == ["*.acme.example", "news@acme.example"]
    with pytest.raises(psycopg.Error):
        queue.enqueue(from_email="a@evil.example")
    said = mailgres("senders", "disallow", "news@acme.example", "--tenant", "acme")
    assert said == "acme: 1 removed; 1 left\n"
    said = mailgres("senders", "disallow", "*.acme.example", "--tenant", "acme")
    assert said == "acme: 1 removed; the list is empty, so the default list applies\n"
    said = mailgres("senders", "disallow", "example.com", "bücher.example")
    assert said == "default: 2 removed; the list is empty, so any sender is accepted\n"


def test_a_sender_that_is_not_listed_cannot_be_disallowed(mailgres: Program, queue: Queue) -> None:
    mailgres("senders", "allow", "example.com")
    what, todo = mailgres.fails("senders", "disallow", "example.com", "example.org")
    assert "'example.org' is not on the list of default" in what
    assert "senders list" in todo
    assert queue.value("SELECT count(*) FROM mailgres.senders") == 1


def test_senders_allow_refuses_a_value_that_is_neither_domain_nor_address(
    mailgres: Program, queue: Queue
) -> None:
    what, todo = mailgres.fails("senders", "allow", "example.com", "Shop <a@example.com>")
    assert "neither a domain nor an address" in what
    assert "*.example.com" in todo
    assert queue.value("SELECT count(*) FROM mailgres.senders") == 0


def test_senders_with_dry_run_changes_nothing(
    mailgres: Program, queue: Queue, server: Server
) -> None:
    assert DRY in mailgres("senders", "allow", "example.com", "--dry-run")
    mailgres("senders", "allow", "example.com")
    assert DRY in mailgres("senders", "disallow", "example.com", "--dry-run")
    assert queue.value("SELECT count(*) FROM mailgres.senders") == 1
    with server.role() as role:
        assert DRY in mailgres("producers", "bind", role, "acme", "--dry-run")
        assert queue.value("SELECT count(*) FROM mailgres.producers") == 0
        mailgres("producers", "bind", role, "acme")
        assert DRY in mailgres("producers", "unbind", role, "--dry-run")
        assert queue.value("SELECT count(*) FROM mailgres.producers") == 1


def test_producers_are_bound_listed_and_unbound(
    mailgres: Program, queue: Queue, server: Server
) -> None:
    Clock(queue.conn, datetime(2026, 11, 16, 18, 44, tzinfo=UTC))
    assert (
        mailgres.run("producers", "list").stderr
        == "No role is bound: every role may enqueue for every tenant.\n"
    )
    with server.role() as role:
        assert mailgres("producers", "bind", role, "acme") == f"{role}: enqueues for acme only\n"
        (listed,) = mailgres.json("producers", "list")
        assert (listed["role_name"], listed["tenant_id"], listed["exists"]) == (role, "acme", True)
        assert mailgres("producers", "list").split() == [
            *("role", "tenant", "since", "exists"),
            *(role, "acme", "2026-11-16", "18:44:00", "UTC", "yes"),
        ]
    assert mailgres.json("producers", "list")[0]["exists"] is False
    assert mailgres("producers", "unbind", role) == f"{role}: enqueues for every tenant\n"
    what, _ = mailgres.fails("producers", "unbind", role)
    assert "is not bound" in what
    what, todo = mailgres.fails("producers", "bind", "no_such_role", "acme")
    assert "there is no role 'no_such_role'" in what
    assert "pg_roles" in todo


def test_binding_a_role_with_members_says_that_they_are_not_bound(
    mailgres: Program, queue: Queue, server: Server
) -> None:
    with server.role() as group, server.role() as member:
        queue.run(f"GRANT {group} TO {member}")
        done = mailgres.run("producers", "bind", group, "acme")
        assert f"members of it are not bound by this: {member}." in done.stderr
