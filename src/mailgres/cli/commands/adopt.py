"""`mailgres adopt`: take over a queue of emails that was written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mailgres.adopt import Options, write
from mailgres.adopt.moving import HOLD_MINUTES
from mailgres.cli.support.adopt_move import moved, undone
from mailgres.cli.support.adopt_plan import plan_lines, planned
from mailgres.cli.support.foreign import inspected, print_report
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.output import echo_lines
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from mailgres.adopt import Inspection


@click.command()
@click.option("--inspect", "inspect_", is_flag=True, help="Explain the queue; write the mapping.")
@click.option(
    "--dry-run", is_flag=True, help="Count what would become of each row; change nothing."
)
@click.option("--undo", "undo_", is_flag=True, help="Give every adopted queue back.")
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="SCHEMA.NAME",
    help="The queue, if several tables may be it; several times for several queues.",
)
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("adopt.toml"),
    show_default=True,
    help="The mapping.",
)
@click.option("--overwrite", is_flag=True, help="Replace the mapping if there is one.")
@click.option("--sql", "print_sql", is_flag=True, help="With --dry-run: print the query, too.")
@click.option(
    "--hold",
    "hold_minutes",
    type=click.IntRange(1, 24 * 60),
    default=HOLD_MINUTES,
    show_default=True,
    metavar="MINUTES",
    help="The longest run of the old processor: imported emails wait so long.",
)
@click.option(
    "--old",
    type=click.Choice(["send", "leave"]),
    help="What becomes of waiting rows that are older than 30 days.",
)
@click.option("--accept", is_flag=True, help="Move though something listed stops working.")
@database_url_option
def adopt(
    *,
    inspect_: bool,
    dry_run: bool,
    undo_: bool,
    tables: tuple[str, ...],
    path: Path,
    overwrite: bool,
    print_sql: bool,
    hold_minutes: int,
    old: str | None,
    accept: bool,
    database_url: str | None,
) -> None:
    """Take over a queue of emails that you wrote by hand.

    --inspect reads the catalog and a sample of rows. It explains which table is the queue, what
    each column and each status is, who inserts, who processes and what is wrong, and writes the
    mapping to a file that you edit. --dry-run reads that file and all rows, and says how many would
    be sent, are in flight, are history or cannot be mapped, with samples. Neither changes anything
    in the database.

    Without them the queue moves: its table goes to the schema mailgres_adopted, a view takes its
    name, and the rows that wait are imported. Before anything changes, what would stop working is
    listed. A move that was interrupted is resumed. --undo puts everything back, and marks the rows
    of the old table whose emails were sent.

    \b
    Examples:
      mailgres adopt --inspect
      mailgres adopt --inspect --table public.email_queue --file queue.toml
      mailgres adopt --dry-run
      mailgres adopt --dry-run --sql
      mailgres adopt --old leave
      mailgres adopt --undo
    """
    if inspect_ + dry_run + undo_ > 1:
        raise click.UsageError("Give one of --inspect, --dry-run and --undo.")
    if undo_:
        echo_lines(undone(database_url))
        return
    if dry_run:
        echo_lines(plan_lines(planned(database_url, path), with_query=print_sql))
        return
    if not inspect_:
        options = Options(hold_minutes=hold_minutes, old=old, accept=accept)
        echo_lines(moved(database_url, path, options))
        return
    if path.exists() and not overwrite:
        raise MailgresError(
            f"{path} is there already; it may have answers of yours",
            "Give --overwrite to replace it, or --file to write another one.",
        )
    found = inspected(database_url, tables)
    _save(path, write([each.proposal for each in found.queues]))
    print_report(found, json_=False)
    click.echo(f"\n{_next(found, path)}")


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MailgresError(
            f"Cannot write {path}: {error.strerror}", "Give another place with --file."
        ) from None


def _next(found: Inspection, path: Path) -> str:
    questions = len(found.mapping.questions())
    asks = f" It has {questions} questions for you." if questions else ""
    return f"Wrote {path}.{asks} Every guess in it has a comment; check them."
