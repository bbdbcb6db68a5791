"""The API for applications: enqueue, enqueue_many, cancel, retry, reschedule.

Each function takes the application's own connection or session first and works in its transaction:
it never commits and never rolls back, so an email is sent if, and only if, the transaction commits.
With an async connection it returns an awaitable.

A refusal raises an error of `mailgres.errors` and leaves no trace of the email. PostgreSQL then
takes no further statement in this transaction; to continue after errors, call inside a savepoint
(`connection.transaction()` in psycopg, `session.begin_nested()` in SQLAlchemy).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, overload
from uuid import UUID

from mailgres.connections import run
from mailgres.connections.query_calls import QueryCall
from mailgres.errors import RequestRefused
from mailgres.request import ARGUMENTS, DEFAULTS, FIELDS, encode, encode_as_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator, Mapping
    from datetime import datetime
    from typing import Any, Unpack

    from mailgres.connections import AsyncConnection, SyncConnection
    from mailgres.connections.query_calls import Steps
    from mailgres.request import Email, EmailOptions

NO_VARIABLES: Mapping[str, Any] = MappingProxyType({})
EMAILS_PER_CALL = 1000
BYTES_PER_CALL = 32 * 1024 * 1024
"""Attachments may be large: a call then takes fewer emails instead of more memory."""


@overload
def enqueue(
    connection: SyncConnection,
    template_type: str | None,
    recipient_email: str,
    payload: Mapping[str, Any] = ...,
    **options: Unpack[EmailOptions],
) -> UUID: ...


@overload
def enqueue(
    connection: AsyncConnection,
    template_type: str | None,
    recipient_email: str,
    payload: Mapping[str, Any] = ...,
    **options: Unpack[EmailOptions],
) -> Awaitable[UUID]: ...


def enqueue(
    connection: SyncConnection | AsyncConnection,
    template_type: str | None,
    recipient_email: str,
    payload: Mapping[str, Any] = NO_VARIABLES,
    **options: Unpack[EmailOptions],
) -> UUID | Awaitable[UUID]:
    """Put an email into the queue, in the connection's transaction, and return its id.

    `payload` has the variables of the template; the options are those of `EmailOptions`.
    """
    if unknown := set(options) - set(FIELDS):
        raise TypeError(f"enqueue() got an unexpected keyword argument {min(unknown)!r}")
    email = {
        "template_type": template_type,
        "recipient_email": recipient_email,
        "payload": payload,
        **options,
    }
    return run(connection, _enqueue(email))


def _enqueue(email: Mapping[str, Any]) -> Steps[UUID]:
    (found,) = yield QueryCall("enqueue", DEFAULTS | encode(email))
    return UUID(str(found))  # some drivers return text


@overload
def enqueue_many(connection: SyncConnection, emails: Iterable[Email]) -> list[UUID]: ...


@overload
def enqueue_many(connection: AsyncConnection, emails: Iterable[Email]) -> Awaitable[list[UUID]]: ...


def enqueue_many(
    connection: SyncConnection | AsyncConnection, emails: Iterable[Email]
) -> list[UUID] | Awaitable[list[UUID]]:
    """Put many emails into the queue, all or none, and return their ids in order.

    Each is a mapping with the arguments of `enqueue`. They are taken from the iterable as needed, a
    thousand for each call of the database. A savepoint holds several calls together, so that
    nothing is left of them if one is refused or the iterable raises. An error says in `index` which
    email it is about, counting from 0.
    """
    return run(connection, _enqueue_many(emails), several=True)


def _enqueue_many(emails: Iterable[Mapping[str, Any]]) -> Steps[list[UUID]]:
    ids: list[UUID] = []
    guarded = False
    try:
        for elements, full in _portions(emails):
            if full and not guarded:
                # One call is all or none by itself; several need a savepoint before the first.
                yield QueryCall("savepoint")
                guarded = True
            array = f"[{','.join(elements)}]"
            found = yield QueryCall("enqueue_many", {"emails": array}, first=len(ids))
            ids += (UUID(str(one)) for one in found)
    except Exception:
        if guarded:
            yield QueryCall("rollback_to_savepoint")
            yield QueryCall("release_savepoint")
        raise
    if guarded:
        yield QueryCall("release_savepoint")
    return ids


def _portions(emails: Iterable[Mapping[str, Any]]) -> Iterator[tuple[list[str], bool]]:
    """Split emails into what goes into one call each, with whether another may follow."""
    portion: list[str] = []
    size = 0
    for index, email in enumerate(emails):
        try:
            element = encode_as_json(email)
        except RequestRefused as error:
            message = f"{error.message} (element {index} of the array, counting from 0)"
            raise type(error)(message, error.hint, index=index) from None
        portion.append(element)
        size += len(element)
        if len(portion) == EMAILS_PER_CALL or size >= BYTES_PER_CALL:
            yield portion, True
            portion, size = [], 0
    if portion:
        yield portion, False


@overload
def cancel(connection: SyncConnection, email_id: UUID | str, reason: str | None = None) -> bool: ...


@overload
def cancel(
    connection: AsyncConnection, email_id: UUID | str, reason: str | None = None
) -> Awaitable[bool]: ...


def cancel(
    connection: SyncConnection | AsyncConnection, email_id: UUID | str, reason: str | None = None
) -> bool | Awaitable[bool]:
    """Cancel an email whose sending has not started; return False if it was cancelled before."""
    return run(connection, _act("cancel", email_id=email_id, reason=reason))


@overload
def retry(
    connection: SyncConnection, email_id: UUID | str, *, accept_duplicate: bool = False
) -> bool: ...


@overload
def retry(
    connection: AsyncConnection, email_id: UUID | str, *, accept_duplicate: bool = False
) -> Awaitable[bool]: ...


def retry(
    connection: SyncConnection | AsyncConnection,
    email_id: UUID | str,
    *,
    accept_duplicate: bool = False,
) -> bool | Awaitable[bool]:
    """Make a dead, cancelled or waiting email pending again, due now, with all its retries.

    If an earlier attempt is uncertain and nothing prevents a duplicate, this is refused unless
    `accept_duplicate`.
    """
    return run(connection, _act("retry", email_id=email_id, accept_duplicate=accept_duplicate))


@overload
def reschedule(
    connection: SyncConnection, email_id: UUID | str, scheduled_for: datetime
) -> bool: ...


@overload
def reschedule(
    connection: AsyncConnection, email_id: UUID | str, scheduled_for: datetime
) -> Awaitable[bool]: ...


def reschedule(
    connection: SyncConnection | AsyncConnection, email_id: UUID | str, scheduled_for: datetime
) -> bool | Awaitable[bool]:
    """Change the time at which a waiting email is sent."""
    return run(connection, _act("reschedule", email_id=email_id, scheduled_for=scheduled_for))


def _act(query: str, **arguments: object) -> Steps[bool]:
    (changed,) = yield QueryCall(query, encode(arguments, ARGUMENTS))
    return bool(changed)
