"""Inspect a foreign queue and print what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from mailgres import database
from mailgres.adopt import inspect, report
from mailgres.cli.support.output import as_json, echo_lines
from mailgres.cli.support.tables import harmless
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.adopt import Inspection


def inspected(database_url: str | None, tables: Sequence[str] = ()) -> Inspection:
    """Inspect a database; errors of the database become readable ones."""
    name = "mailgres adopt"
    with database.connect(database_url, application_name=name) as connection:
        try:
            return inspect(connection, tables)
        except psycopg.errors.QueryCanceled:
            raise MailgresError(
                "The database took too long to answer", "Nothing was changed. Run this again later."
            ) from None
        except psycopg.Error as error:
            raise MailgresError(
                f"Cannot inspect the database: {database.first_line(error)}",
                "Nothing was changed.",
            ) from None


def print_report(found: Inspection, *, json_: bool) -> None:
    """Print an inspection as text or as JSON."""
    if json_:
        as_json(as_values(found))
        return
    echo_lines(harmless(line) for line in report(found))


def as_values(found: Inspection) -> dict[str, Any]:
    """Return an inspection as values of JSON."""
    return {
        "queues": [
            {
                "table": each.proposal.queue.table,
                "package": each.proposal.package,
                "columns": {str(s): to for s, to in each.proposal.queue.columns.items()},
                "statuses": each.proposal.queue.statuses,
                "remarks": {key: text for key, text in each.proposal.remarks.items() if text},
                "inserting_functions": [f.signature for f in each.writers.inserting],
                "inserting_triggers": [t.name for t in each.writers.inserting_triggers],
                "jobs": [job.title for job in each.writers.jobs],
                "faults": [
                    {"name": f.name, "message": f.message, "line": f.line} for f in each.faults
                ],
            }
            for each in found.queues
        ],
        "others": list(found.others),
        "questions": [f"{where}: {text}" for where, text in found.mapping.questions()],
    }
