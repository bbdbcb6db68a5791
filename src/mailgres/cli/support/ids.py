"""Ids of emails: short ones for tables, and what people type, whole or only the beginning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from mailgres.cli.support.operator import operator
from mailgres.cli.support.output import time_cell
from mailgres.cli.support.tables import table, terminal_width
from mailgres.errors import MailgresError, UnknownEmail

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mailgres.cli.support.operator import Operator

LEAST_DIGITS = 4
"""Fewer digits of an id are more likely a mistake than an id."""
CANDIDATES = 10
"""How many emails are listed if several ids have the beginning."""
_SHORT = 13
"""The time in milliseconds: a shorter id would soon be that of many emails."""
_DIGITS = 32
_WHOLE = 36
_TYPED = re.compile(r"[0-9a-f][0-9a-f-]*")


@dataclass(frozen=True)
class Prefix:
    """The beginning of an id, as it was typed."""

    text: str

    @property
    def first(self) -> UUID:
        """The least id with this beginning."""
        return UUID(self._digits.ljust(_DIGITS, "0"))

    @property
    def last(self) -> UUID:
        """The greatest id with this beginning."""
        return UUID(self._digits.ljust(_DIGITS, "f"))

    @property
    def _digits(self) -> str:
        return self.text.replace("-", "")


def email_id(given: str) -> UUID | Prefix:
    """Read an id of an email, or its first digits."""
    try:
        return UUID(given)
    except ValueError:
        text = given.strip().rstrip("….").lower()
    if not _TYPED.fullmatch(text) or not LEAST_DIGITS <= len(text.replace("-", "")) < _DIGITS:
        raise click.BadParameter(
            f"{given!r} is not an id. Give a UUID, or at least its first {LEAST_DIGITS} digits."
        )
    return Prefix(text)


id_argument = click.argument("email_id", metavar="ID", type=email_id)
ids_argument = click.argument("ids", metavar="[ID]…", nargs=-1, type=email_id)


def resolve(database: Operator, given: UUID | Prefix) -> UUID:
    """Return the one id that begins like this; list the candidates if there are several."""
    if isinstance(given, UUID):
        return given
    found = database.ask(
        "emails_with_prefix", first=given.first, last=given.last, limit=CANDIDATES + 1
    )
    if not found:
        raise UnknownEmail(
            f"No id begins with {given.text}, neither in the queue nor in the archive",
            "`mailgres list` shows the emails of the last 24 hours, `mailgres dlq list` dead ones.",
        )
    if len(found) > 1:
        raise _Ambiguous(given, found)
    return UUID(found[0]["id"])


def resolve_all(database_url: str | None, given: Sequence[UUID | Prefix]) -> list[UUID]:
    """Return the ids, in order and each once; the database is asked only about prefixes."""
    whole = [one for one in given if isinstance(one, UUID)]
    if len(whole) < len(given):
        with operator(database_url) as database:
            whole = [resolve(database, one) for one in given]
    return sorted(set(whole))


def short_ids(database: Operator, rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Return the short forms for a table at a terminal, by id; in a pipe there are none.

    Each is the beginning of one id only: its neighbours in the index begin otherwise.
    """
    ids = [row["id"] for row in rows]
    if terminal_width() is None or not ids:
        return {}
    length = _SHORT
    for found in database.ask("neighbours", ids=ids):
        for other in found["neighbours"]:
            length = max(length, _common(found["id"], other) + 1)
    return {one: one[:length].rstrip("-") for one in ids if length < _WHOLE}


def _common(one: str, other: str) -> int:
    """Return how many characters two ids have in common from the beginning."""
    return next(at for at, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])


class _Ambiguous(MailgresError):
    """Several ids have the beginning that was given."""

    def __init__(self, given: Prefix, found: list[dict[str, Any]]) -> None:
        many = f"{len(found)}" if len(found) <= CANDIDATES else f"More than {CANDIDATES}"
        listed = [
            (one["id"], time_cell(one["created_at"]), one["status"], one["template_type"])
            for one in found[:CANDIDATES]
        ]
        lines = [line for block in table(("",) * 4, listed)[1:] for line in block]
        super().__init__(
            "\n  ".join([f"{many} ids begin with {given.text}:", *lines]), "Give more digits."
        )
