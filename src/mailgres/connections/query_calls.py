"""A call of a named query, and the errors it may end in."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from mailgres.errors import MailgresError, RequestRefused
from mailgres.sqlstates import driver_error, from_database

T = TypeVar("T")


@dataclass(frozen=True)
class QueryCall:
    """One query, of which the first column is read."""

    query: str
    parameters: dict[str, Any] = field(default_factory=dict)
    first: int = 0
    """For a call with some of many emails: the index of its first email among all."""


Steps: TypeAlias = Generator[QueryCall, list[Any], T]
"""Calls one after the other, each answered by the values it returned; in the end a result."""


def drive(steps: Steps[T], execute: Callable[[QueryCall], list[Any]]) -> T:
    """Run calls one after the other. An error of one is raised in the generator first."""
    try:
        call = next(steps)
        while True:
            try:
                values = execute(call)
            except Exception as error:  # noqa: BLE001 - the steps raise it again
                call = steps.throw(error)
            else:
                call = steps.send(values)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def drive_async(steps: Steps[T], execute: Callable[[QueryCall], Awaitable[list[Any]]]) -> T:
    """Run calls as `drive` does, awaiting each."""
    try:
        call = next(steps)
        while True:
            try:
                values = await execute(call)
            except Exception as error:  # noqa: BLE001 - the steps raise it again
                call = steps.throw(error)
            else:
                call = steps.send(values)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def not_a_connection(given: object) -> TypeError:
    """Return the error for an object that is not a connection."""
    return TypeError(
        f"{type(given).__name__} is not a connection: pass a Connection or AsyncConnection of"
        " psycopg, or a Connection, Session, AsyncConnection or AsyncSession of SQLAlchemy"
    )


@contextmanager
def translated(call: QueryCall, *kinds: type[Exception]) -> Iterator[None]:
    """Raise our error instead of the driver's, where there is one."""
    try:
        yield
    except kinds as error:
        ours = from_database(error)
        if ours is None:
            if hasattr(error, "hide_parameters"):
                # SQLAlchemy's text would list the parameters, the recipient among them.
                error.hide_parameters = True
            raise
        raise _placed(ours, call.first) from driver_error(error)


# Only where the database itself writes it: a template's name may contain the same words.
_ELEMENT = re.compile(
    r"(?:^element|(?<= \()element) (\d+) of the array(?: \(counting from 0\)|, counting from 0\)$)"
)


def _placed(error: MailgresError, first: int) -> MailgresError:
    """Return an error about one of many emails with its index among all, not in the call."""
    found = _ELEMENT.search(error.message)
    if not found or not isinstance(error, RequestRefused):
        return error
    start, end = found.span(1)
    index = first + int(found[1])
    message = f"{error.message[:start]}{index}{error.message[end:]}"
    return type(error)(message, error.hint, index=index)
