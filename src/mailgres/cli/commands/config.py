"""`mailgres config`: the settings in effect and their origins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support.options import json_option, settings_options
from mailgres.cli.support.output import as_json, print_table
from mailgres.cli.support.tables import Column
from mailgres.settings import DEFINITIONS

if TYPE_CHECKING:
    from mailgres.settings import Explanation, Settings


@click.command()
@settings_options("profile")
@json_option
def config(*, settings: Settings, as_json_: bool) -> None:
    """Show every setting, its value and where it came from.

    Flags override environment variables, which override mailgres.toml, which overrides the
    profile, which overrides the defaults. Secrets are masked. Exits with 1 if a setting is invalid.

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
    print_table(("setting", Column("value", least=24), "from"), rows)
    for remark in settings.remarks():
        click.echo(f"Note: {remark}.", err=True)


def _listed(settings: Settings) -> dict[str, Any]:
    return {
        each.name: {
            "value": _plain(settings, each),
            "from": each.origin.text,
            "layer": each.origin.layer,
        }
        for each in settings.explain()
    }


def _plain(settings: Settings, each: Explanation) -> object:
    """Return numbers and lists unchanged for JSON, everything else as the text that is shown."""
    definition = DEFINITIONS.get(each.name)
    value = getattr(settings, each.name) if definition and not definition.secret else None
    return value if isinstance(value, int | tuple) else each.value or None
