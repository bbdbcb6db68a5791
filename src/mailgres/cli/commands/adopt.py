"""`mailgres adopt`: understand a queue of emails that was written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mailgres.adopt import write
from mailgres.cli.support.foreign import inspected, print_report
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from mailgres.adopt import Inspection


@click.command()
@click.option("--inspect", "inspect_", is_flag=True, help="Explain the queue; write the mapping.")
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
@database_url_option
def adopt(
    *,
    inspect_: bool,
    tables: tuple[str, ...],
    path: Path,
    overwrite: bool,
    database_url: str | None,
) -> None:
    """Understand a queue of emails that you wrote by hand, and map it to ours.

    --inspect reads the catalog and a sample of rows. It explains which table is the queue, what
    each column and each status is, who inserts, who processes and what is wrong, and writes the
    mapping to a file that you edit. It changes nothing in the database.

    \b
    Examples:
      mailgres adopt --inspect
      mailgres adopt --inspect --table public.email_queue --file queue.toml
    """
    if not inspect_:
        raise click.UsageError("Say what to do: --inspect.")
    if path.exists() and not overwrite:
        raise MailgresError(
            f"{path} is there already; it may have answers of yours",
            "Give --overwrite to replace it, or --file to write another one.",
        )
    found = inspected(database_url, tables)
    text = write([each.proposal for each in found.queues])
    _save(path, text)
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
