"""Every route, with every method, as everybody: the table of routes decides, and nothing else."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from mailgres.page.users import Role
from page.client import Client
from page.sending import enqueue
from support.queue import Queue

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def path_of(pattern: str, queue_id: UUID) -> str:
    """A path of a route, with values that exist."""
    return re.sub(r"\{\w+\}", "1", re.sub(r"\{\w+:uuid\}", str(queue_id), pattern))


@pytest.mark.parametrize("role", [Role.ANYONE, Role.VIEWER, Role.OPERATOR])
def test_every_route_answers_exactly_the_roles_and_methods_of_the_table(
    stranger: Client, viewer: Client, operator: Client, queue: Queue, role: Role
) -> None:
    client = {Role.ANYONE: stranger, Role.VIEWER: viewer, Role.OPERATOR: operator}[role]
    queue_id = enqueue(queue)
    before = queue.rows("SELECT id, status, next_retry_at, ready FROM email_queue")
    rules = {(rule.path, rule.method): rule for rule in client.app.rules}
    own = {**FORM, "Origin": f"http://127.0.0.1:{client.port}"}
    for path in sorted({rule.path for rule in client.app.rules} - {"/session", "/sign-out"}):
        for method in METHODS:
            rule = rules.get((path, method))
            # Without the token of a form, so that an operator changes nothing either.
            answer = client.send(method, path_of(path, queue_id), "", dict(own))
            told = f"{role.name} {method} {path}: {answer.status}"
            if rule is None:
                assert answer.status == 405, told
            elif role < rule.role:
                assert answer.status == 403, told
                assert "too old" not in answer.text, told
            elif method == "POST":
                assert (answer.status, "too old" in answer.text) == (403, True), told
            else:
                assert answer.status in (200, 400, 404), told
    assert queue.rows("SELECT id, status, next_retry_at, ready FROM email_queue") == before


def test_the_application_has_no_route_beside_the_table(stranger: Client) -> None:
    routes = {route.path for route in stranger.app._app.routes}  # type: ignore[attr-defined]
    assert routes == {rule.path for rule in stranger.app.rules} | {"/static/{name}"}


def test_every_change_needs_an_operator(stranger: Client) -> None:
    """Signing in and out change no email."""
    changes = {rule for rule in stranger.app.rules if rule.method == "POST" and rule.is_change}
    assert {rule.role for rule in changes} <= {Role.OPERATOR}
    others = {rule.path for rule in stranger.app.rules if rule.method == "POST"}
    assert others - {rule.path for rule in changes} == {"/session", "/sign-out"}


def test_a_viewer_who_gets_past_the_table_is_refused_by_postgresql(
    stranger: Client, queue: Queue
) -> None:
    """The handlers check nothing more: the database does."""
    from mailgres.errors import MailgresError
    from mailgres.page.users import User

    queue_id = enqueue(queue)
    store = stranger.app.store
    with pytest.raises(MailgresError, match="Your role may not do this"):
        store.change(User("vic", Role.VIEWER), "cancel", id=queue_id, reason=None)
    with pytest.raises(MailgresError, match="Your role may not do this"):
        store.read(Role.VIEWER, "email_as_operator", id=queue_id)
    assert queue.value("SELECT status FROM email_queue") == "pending"


def test_pages_read_in_a_read_only_transaction(stranger: Client, queue: Queue) -> None:
    from mailgres.errors import MailgresError

    queue_id = enqueue(queue)
    with pytest.raises(MailgresError):
        stranger.app.store.read(Role.OPERATOR, "cancel", id=queue_id, reason=None)
    assert queue.value("SELECT status FROM email_queue") == "pending"
