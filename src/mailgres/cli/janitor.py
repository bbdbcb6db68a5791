"""`mailgres janitor`: do by hand what workers do by themselves."""

from __future__ import annotations

import difflib
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import psycopg

from mailgres import __version__, database
from mailgres import janitor as janitors
from mailgres.cli.options import settings_options
from mailgres.errors import MailgresError, NotMigrated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.janitor import Janitor
    from mailgres.settings import Settings


@click.command()
@click.argument("name", required=False)
@click.option("--worker", metavar="NAME", help="Whose heartbeat it is.")
@settings_options("database_url", "alert_email", "alert_webhook")
def janitor(*, settings: Settings, name: str | None, worker: str | None) -> None:
    """Do one duty of the janitors once, or list them.

    Workers do them at their intervals by themselves. Doing one by hand beside them is safe: a duty
    is done by one at a time, and `busy` says that it was being done already.

    \b
    Examples:
      mailgres janitor
      mailgres janitor archive
    """
    if name is None:
        for line in _listed():
            click.echo(line)
        return
    duty, url = _find(name), settings.database_url
    if not duty.locked and worker is None:
        raise click.UsageError(f"Every worker does {name} for itself: name one with --worker.")
    alerts = janitors.Alerts(settings.alert_email, settings.alert_webhook)
    given = janitors.WorkerInfo(worker or "", __version__, alerts=alerts)
    with _explained(duty):
        done = janitors.run(duty, lambda: database.connect(url, autocommit=True), given)
    report = {"janitor": duty.name, "handled": done.handled, "busy": done.busy, "more": done.more}
    click.echo(json.dumps(report))


def _listed() -> list[str]:
    width = max(map(len, janitors.JANITORS))
    return [
        f"{one.name:{width}}  every {one.every.total_seconds():3g} s  {one.duty}"
        for one in janitors.JANITORS.values()
    ]


def _find(name: str) -> Janitor:
    if found := janitors.JANITORS.get(name):
        return found
    near = difflib.get_close_matches(name, janitors.JANITORS, n=1)
    advice = f"Did you mean {near[0]}?" if near else "`mailgres janitor` lists them."
    raise click.UsageError(f"There is no janitor {name!r}. {advice}")


@contextmanager
def _explained(duty: Janitor) -> Iterator[None]:
    """Turn errors of the database into what a person needs of them."""
    try:
        yield
    except (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName):
        raise NotMigrated from None
    except psycopg.Error as error:
        reason = database.first_line(error)
        raise MailgresError(
            f"{duty.name} failed: {reason}", "What it had done before is done; run it again."
        ) from None
