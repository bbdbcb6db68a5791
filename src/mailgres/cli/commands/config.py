"""`mailgres config`: which settings hold, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from mailgres.cli.support.options import settings_options

if TYPE_CHECKING:
    from mailgres.settings import Settings


@click.command()
@settings_options("profile")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def config(*, settings: Settings, as_json: bool) -> None:
    """Show every setting, its value and where it came from.

    A flag goes before the environment, that before mailgres.toml, that before the profile, that
    before the default. Secrets are masked. Exits with 1 if a setting is wrong.

    \b
    Examples:
      mailgres config
      mailgres config --profile gateway
      mailgres config --json | jq .settings.concurrency
    """
    click.echo(_json(settings) if as_json else _table(settings))
    if not as_json:
        for remark in settings.remarks():
            click.echo(f"Note: {remark}.", err=True)


def _json(settings: Settings) -> str:
    listed = {
        each.name: {
            "value": _plain(getattr(settings, each.name, None), each.value),
            "from": each.origin.text,
            "layer": each.origin.layer,
        }
        for each in settings.explain()
    }
    return json.dumps({"settings": listed, "remarks": settings.remarks()}, indent=2)


def _plain(value: object, shown: str) -> object:
    """Return a number or a list as JSON has it, everything else as it is shown."""
    return value if isinstance(value, int | tuple) else shown or None


def _table(settings: Settings) -> str:
    head = ("setting", "value", "from")
    rows = [(each.name, each.value or "-", each.origin.text) for each in settings.explain()]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in (head, *rows))
    return "\n".join(lines)
