"""`mailgres policies`: the waits between retries and the number of retries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click
from psycopg.types.json import Jsonb

from mailgres.cli.support.errors import Group
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import NONE, count, print_rows, reader
from mailgres.values.kinds import BadValue, Duration, Or

_HEAD = ("policy", "retries", "waits", "jitter", "description")
_WAIT = Duration("1ms", "30d")
_EXPIRY = Or("never", Duration("1s", "3650d"))


@click.group(cls=Group)
def policies() -> None:
    """List and set retry policies."""


@policies.command("list")
@json_option
@database_url_option
def list_(*, as_json_: bool, database_url: str | None) -> None:
    """List the retry policies; in JSON, waits are in seconds.

    \b
    Examples:
      mailgres policies list
      mailgres policies list --json | jq '.[] | select(.default)'
    """
    with operator(database_url) as database:
        found = database.ask("policies")
    print_rows(found, _HEAD, _row, json_=as_json_)


def _steps(given: str) -> list[timedelta]:
    try:
        return [_WAIT.parse(part) for part in given.split(",")]
    except BadValue as why:
        raise click.BadParameter(f"{why}. Give waits such as 1m,5m,15m.") from None


_FRACTION = click.FloatRange(0, 1)


@policies.command("set")
@click.argument("name")
@click.option("--retries", type=click.IntRange(0, 100), help="Retries after the first attempt.")
@click.option("--steps", type=_steps, metavar="WAIT,…", help="The waits; the last one repeats.")
@click.option("--base", type=reader(_WAIT), metavar="WAIT", help="The first wait, which grows.")
@click.option(
    "--factor", type=click.FloatRange(1, 10), help="The factor by which it grows.  [default: 2]"
)
@click.option("--cap", type=reader(_WAIT), metavar="WAIT", help="The longest wait.  [default: 1d]")
@click.option(
    "--jitter", type=_FRACTION, help="The largest random part by which a wait is shorter or longer."
)
@click.option("--jitter-down", type=_FRACTION, help="The same, only shorter.")
@click.option("--jitter-up", type=_FRACTION, help="The same, only longer.")
@click.option("--description", help="What it is for.")
@dry_run_option
@database_url_option
def set_(*, name: str, dry_run: bool, database_url: str | None, **given: Any) -> None:  # noqa: ANN401
    """Create or change a retry policy; options that are not given stay as they are.

    New waits apply to emails in the queue at once; a new number of retries applies to emails that
    are enqueued from now on.

    \b
    Examples:
      mailgres policies set stepped --steps 1m,10m,1h
      mailgres policies set nightly --retries 5 --base 10m --factor 3 --cap 12h --jitter 0.2
    """
    if given["steps"] and given["base"]:
        raise click.UsageError("Give --steps or --base, not both.")
    settings = _settings(given)
    if not settings:
        raise click.UsageError("Give an option to set: --retries, --steps, --base, …")
    with operator(database_url, name, dry_run=dry_run) as database:
        database.ask("set_policy", name=name, settings=Jsonb(settings))
        (found,) = [one for one in database.ask("policies") if one["name"] == name]
    click.echo(f"{name}: {count(found['max_retries'], 'retry', 'retries')}, waits {_waits(found)}")


@policies.command("default")
@click.argument("name", required=False)
@click.option(
    "--expires-after",
    type=reader(_EXPIRY),
    metavar=_EXPIRY.metavar,
    help="Emails not sent this long after they were due are dead.",
)
@dry_run_option
@database_url_option
def default(
    *,
    name: str | None,
    expires_after: timedelta | object | None,
    dry_run: bool,
    database_url: str | None,
) -> None:
    """Set the default retry policy and the default expiry.

    They apply to emails that are enqueued from now on. Only the first worker sets them, from its
    settings retry_policy and expires_after; after that they are changed here.

    \b
    Examples:
      mailgres policies default patient
      mailgres policies default gateway --expires-after 24h
      mailgres policies default --expires-after never
    """
    settings: dict[str, object] = {} if name is None else {"retry_policy": name}
    if expires_after is not None:
        settings["expires_after"] = None if expires_after is NONE else _as_json(expires_after)
    if not settings:
        raise click.UsageError("Give a policy, --expires-after, or both.")
    with operator(database_url, *filter(None, [name]), dry_run=dry_run) as database:
        database.ask("set_defaults", settings=Jsonb(settings))
        (found,) = database.ask("defaults")
    seconds = found["expires_after"]
    after = _EXPIRY.show(None if seconds is None else timedelta(seconds=seconds))
    click.echo(f"default: {found['retry_policy']}; emails expire after: {after}")


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    jitter = given.pop("jitter")
    for name in ("jitter_down", "jitter_up"):
        given[name] = jitter if given[name] is None else given[name]
    given["max_retries"] = given.pop("retries")
    return {name: _as_json(value) for name, value in given.items() if value is not None}


def _as_json(value: object) -> object:
    if isinstance(value, list):
        return [_as_json(one) for one in value]
    return f"{value.total_seconds()} seconds" if isinstance(value, timedelta) else value


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{one['name']}{' (default)' if one['default'] else ''}",
        str(one["max_retries"]),
        _waits(one),
        _jitter(one),
        one["description"],
    )


def _waits(one: dict[str, Any]) -> str:
    def show(seconds: float) -> str:
        return _WAIT.show(timedelta(seconds=seconds))

    if one["steps"]:
        return ", ".join(map(show, one["steps"]))
    return f"{show(one['base'])} x {one['factor']:g} up to {show(one['cap'])}"


def _jitter(one: dict[str, Any]) -> str:
    down, up = one["jitter_down"], one["jitter_up"]
    if not down and not up:
        return "-"
    return f"-{down:.0%} +{up:.0%}"
