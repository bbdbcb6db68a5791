"""`mailgres doctor`: find problems of an installation and their fixes."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mailgres.cli.support.foreign import inspected, print_report
from mailgres.cli.support.options import json_option, settings_options
from mailgres.cli.support.output import as_json, echo_lines
from mailgres.cli.support.tables import harmless, terminal_width, wrapped
from mailgres.doctor import NAMES, SEVERITIES, examine, restoring_sql

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mailgres.doctor import Finding
    from mailgres.settings import Settings

COLOURS = {"error": "red", "warning": "yellow", "info": "blue", "ok": "green"}


@click.command()
@json_option
@click.option("--offline", is_flag=True, help="Skip checks that ask providers and name servers.")
@click.option(
    "--only", multiple=True, metavar="CHECK", type=click.Choice(NAMES), help="Run only this check."
)
@click.option("--quiet", is_flag=True, help="Show only warnings and errors.")
@click.option(
    "--nameserver",
    "nameservers",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Ask this name server about sender domains, not those of the system.",
)
@click.option(
    "--as-worker",
    is_flag=True,
    help="Check the settings and rights of this shell as a worker's, even without providers.",
)
@click.option("--foreign", is_flag=True, help="Report on a queue of emails that is not mailgres's.")
@click.option("--sql", "print_sql", is_flag=True, help="Print the SQL that restores the schema.")
@settings_options("database_url", "providers", "from_email")
def doctor(
    *,
    settings: Settings,
    as_json_: bool,
    offline: bool,
    only: tuple[str, ...],
    quiet: bool,
    nameservers: tuple[str, ...],
    as_worker: bool,
    print_sql: bool,
    foreign: bool,
) -> None:
    """Check the installation: database, schema, privileges, queue, providers, domain.

    The checks are about the system: the database, the routes and the live workers. The settings,
    credentials and rights of this shell are checked if its settings name providers, as a worker's
    do, or with --as-worker. The command changes nothing and sends nothing. A finding comes with the
    command that fixes it, where there is one. Checks that could not run are listed. Exits with 1 if
    there are errors.

    With --foreign it looks instead for a queue that was written by hand, and explains what is in
    it and what is wrong with it. It needs read access only.

    \b
    Examples:
      mailgres doctor
      mailgres doctor --quiet --offline
      mailgres doctor --only grants --only row-security
      mailgres doctor --json | jq -r '.[] | select(.severity == "error") | .fix'
      mailgres doctor --sql | psql "$DATABASE_URL"
      mailgres doctor --foreign
    """
    if foreign:
        print_report(inspected(settings.database_url), json_=as_json_)
        return
    if print_sql:
        click.echo(restoring_sql(settings), nl=False)
        return
    found = []
    for finding in examine(
        settings,
        offline=offline,
        nameservers=nameservers or None,
        only=only,
        as_worker=as_worker,
    ):
        if quiet and finding.severity not in ("error", "warning"):
            continue
        found.append(finding)
        if not as_json_:
            _print_finding(finding)
    if as_json_:
        as_json([asdict(finding) for finding in found])
    else:
        click.echo(_summary(found))
    if any(finding.severity == "error" for finding in found):
        sys.exit(1)


def _print_finding(finding: Finding) -> None:
    word = click.style(f"{finding.severity:8}", fg=COLOURS[finding.severity])
    width = terminal_width()
    text = f"{word} {finding.check}: {harmless(finding.message)}"
    echo_lines(wrapped(text, width, " " * 9))
    if finding.fix:  # a command: it is not broken
        click.echo(f"{'':8}   → {harmless(finding.fix)}")


def _summary(found: Iterable[Finding]) -> str:
    """Return the number of findings of each severity."""
    counts = Counter(finding.severity for finding in found)
    one = {"error": "error", "warning": "warning", "info": "remark", "ok": "good"}
    many = {"error": "errors", "warning": "warnings", "info": "remarks", "ok": "good"}
    reported = [
        f"{counts[severity]} {(one if counts[severity] == 1 else many)[severity]}"
        for severity in SEVERITIES
        if counts[severity]
    ]
    return ", ".join(reported) or "no problems found"
