"""Dead letters in files: exported with all their data, read again to purge them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID

from mailgres.cli.support import files
from mailgres.cli.support.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = (
    *(
        "id",
        "tenant_id",
        "user_id",
        "template_type",
        "recipient_email",
        "attempts",
        "attempt_times",
    ),
    *("dead_reason", "error_class", "error_code", "error_message", "error_detail", "provider"),
    *("correlation_id", "enqueued_at", "dead_at", "archived_at", "expires_at", "email", "log"),
)


def write(letters: Iterable[dict[str, Any]], out: IO[str], kind: str, keys: Keys | None) -> int:
    """Write dead letters, add their keys to `keys`, and return their number."""
    count, put = 0, files.writer(kind, COLUMNS, out)
    for letter in letters:
        put(letter)
        if keys is not None:
            keys.add(*_key(letter))
        count += 1
    return count


def read(path: str, kind: str) -> Keys:
    """Return the keys of the dead letters in a file; each has to be complete."""
    keys = Keys()
    for line, record in files.read(path, kind):
        try:
            keys.add(*_key(_whole(record, kind)))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise files.broken(
                path, line, "this is not a dead letter as `mailgres dlq export` writes it"
            ) from None
    return keys


def _whole(record: dict[str, Any], kind: str) -> dict[str, Any]:
    """Refuse an incomplete record."""
    for name, part in (("email", dict), ("log", list)):
        value = json.loads(record[name]) if kind == files.CSV else record[name]
        if not isinstance(value, part):
            raise TypeError(name)
    if not record["dead_reason"]:
        raise ValueError(record)
    return record


def _key(record: dict[str, Any]) -> tuple[UUID, datetime]:
    dead_at = datetime.fromisoformat(record["dead_at"])
    if dead_at.tzinfo is None:
        raise ValueError(dead_at)
    return UUID(record["id"]), dead_at
