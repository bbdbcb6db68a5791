"""`mailgres config`: which settings hold, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support.options import json_option, settings_options
from mailgres.cli.support.output import as_json, table

if TYPE_CHECKING:
    from mailgres.settings import Settings


@click.command()
@settings_options("profile")
@json_option
def config(*, settings: Settings, as_json_: bool) -> None:
    """Show every setting, its value and where it came from.

    A flag goes before the environment, that before mailgres.toml, that before the profile, that
    before the default. Secrets are masked. Exits with 1 if a setting is wrong.

    \b
    Examples:
      mailgres config
      mailgres config --profile gateway
      mailgres config --json | jq .settings.concurrency
    """
    if as_json_:
        as_json({"settings": _listed(settings), "remarks": settings.remarks()})
        return
    rows = [(each.name, each.value or "-", each.origin.text) for each in settings.explain()]
    for line in table(("setting", "value", "from"), rows):
        click.echo(line)
    for remark in settings.remarks():
        click.echo(f"Note: {remark}.", err=True)


def _listed(settings: Settings) -> dict[str, Any]:
    return {
        each.name: {
            "value": _plain(getattr(settings, each.name, None), each.value),
            "from": each.origin.text,
            "layer": each.origin.layer,
        }
        for each in settings.explain()
    }


def _plain(value: object, shown: str) -> object:
    """Return a number or a list as JSON has it, everything else as it is shown."""
    return value if isinstance(value, int | tuple) else shown or None
