"""Move a foreign queue, or give it back, and print what was done."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import database
from mailgres.adopt import move, undo
from mailgres.cli.support.adopt_plan import mapping_of
from mailgres.cli.support.tables import harmless
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mailgres.adopt import Options


def moved(database_url: str | None, path: Path, options: Options) -> Iterator[str]:
    """Move the queues of a mapping; yield the lines to print."""
    mapping = mapping_of(path)
    with _connected(database_url) as connection:
        yield from map(harmless, move(connection, mapping, options))


def undone(database_url: str | None) -> Iterator[str]:
    """Give every adopted queue back; yield the lines to print."""
    with _connected(database_url) as connection:
        yield from map(harmless, undo(connection))


@contextmanager
def _connected(database_url: str | None) -> Iterator[psycopg.Connection[Any]]:
    """Connect; errors of the database become readable ones."""
    with database.connect(
        database_url, application_name="mailgres adopt", autocommit=True
    ) as connection:
        try:
            yield connection
        except psycopg.Error as error:
            raise MailgresError(
                f"The database interrupted this: {database.first_line(error)}",
                "Every step that was done is kept. Run the same command again to go on.",
            ) from None
