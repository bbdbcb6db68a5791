"""Give an adopted queue back: the old table is where it was, with what was sent marked in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.sql import SQL, Identifier

from mailgres import database
from mailgres.adopt.generated import names, part
from mailgres.adopt.moves import QUERIES, Adopted, adopted, ask, run, switch_jobs
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK: Final = 500
TRIES: Final = 30
PAUSE_SECONDS: Final = 2


def undo(connection: psycopg.Connection[Any]) -> Iterator[str]:
    """Give every adopted queue back; yield a line for each step."""
    found = adopted(connection)
    if not found:
        raise MailgresError("No queue was adopted in this database", "There is nothing to undo.")
    for each in reversed(found):
        with connection.transaction():
            ask(connection, "start_undo", number=each.number)
        _give_back(connection, each)
        yield f"{each.full_name} is a table again; emails that waited are cancelled here."
        yield from ("Its cron job is switched on.",) * bool(each.jobs)


def _give_back(connection: psycopg.Connection[Any], queue: Adopted) -> None:
    """Return the rows, then the table. A worker may have some emails: wait for their outcome."""
    function = {"give_back": names(queue.number)["give_back"]}
    for _ in range(TRIES):
        rows = CHUNK
        while rows:
            with connection.transaction():
                (row,) = ask(connection, "give_back", function, limit=CHUNK)
            rows = row["rows"]
        if _move_back(connection, queue):
            return
        time.sleep(PAUSE_SECONDS)
    (left,) = ask(connection, "remaining", number=queue.number)
    raise MailgresError(
        f"{left['rows']:,} rows of {queue.full_name} have emails that are being sent",
        "Run `mailgres adopt --undo` again when they are done. Until then the view stays.",
    )


def _move_back(connection: psycopg.Connection[Any], queue: Adopted) -> bool:
    """Put the table back, unless rows are left; return whether it is done."""
    own = {"base": queue.base, "view": queue.view}
    try:
        with connection.transaction():
            ask(connection, "limits")
            # Waits for transactions that write the table; what they took over is given back first.
            run(connection, SQL(QUERIES["lock"]).format(base=queue.base))
            (left,) = ask(connection, "remaining", number=queue.number)
            if left["rows"]:
                return False
            run(connection, part("detach", **own, **names(queue.number)))
            schema = Identifier(queue.schema_name)
            run(connection, part("move_back", base=queue.base, schema=schema))
            switch_jobs(connection, queue.jobs, active=True)
            ask(connection, "end_undo", number=queue.number)
            if not adopted(connection):
                run(connection, SQL(QUERIES["drop_state"]))
    except psycopg.errors.LockNotAvailable:
        return False
    except psycopg.Error as error:
        raise MailgresError(
            f"Cannot give {queue.full_name} back: {database.first_line(error)}",
            "The rows are given back; the view is still there. Fix this, and run it again.",
        ) from None
    return True
