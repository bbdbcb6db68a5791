"""Options that several commands share; those of settings come from their definitions."""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from mailgres.settings import DEFINITIONS, Definition, Settings, load

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")


def settings_options(*names: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a command flags for these settings and `--config`, and call it with `settings`.

    The command gets all settings, also those without flags.
    """

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def with_settings(**given: object) -> R:
            return command(settings=_settings(given, names), **given)

        decorated: Callable[..., R] = _config(with_settings)
        for name in reversed(names):
            decorated = _option(DEFINITIONS[name])(decorated)
        return decorated

    return decorate


def setting_option(name: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a command the flag of a setting as a plain option."""
    return _option(DEFINITIONS[name])


json_option = click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")


limit_option = click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="How many to show at most.",
)


def database_url(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command `--database-url`, and call it with the URL or None."""

    @functools.wraps(command)
    def with_url(*, settings: Settings, **given: object) -> R:
        return command(database_url=settings.database_url, **given)

    return utc(settings_options("database_url")(with_url))


def utc(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command `--utc`, which sets the time zone for input and output."""

    def move(_context: click.Context, _parameter: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's signature
        if given:
            os.environ["TZ"] = "UTC"
            time.tzset()

    option = click.option(
        "--utc",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=move,
        help="Show and read times in UTC, not in your time zone.",
    )
    return option(command)


def dry_run(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command `--dry-run`, and print at the end that nothing was changed."""

    @functools.wraps(command)
    def with_dry_run(*, dry_run: bool, **given: object) -> R:
        done = command(dry_run=dry_run, **given)
        if dry_run:
            click.echo("Nothing was changed: this was a dry run.")
        return done

    option = click.option(
        "--dry-run", is_flag=True, help="Check and show what would be done, but change nothing."
    )
    return option(with_dry_run)


def _settings(given: dict[str, object], names: tuple[str, ...]) -> Settings:
    """Remove the flags from a command's arguments and load the settings with them."""
    flags = {name: given.pop(name) for name in (*names, "config")}
    return load(os.environ, flags, Path())


_config = click.option(
    "--config", metavar="FILE", help="Read settings from FILE, not ./mailgres.toml."
)


def _option(definition: Definition) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return the flag of a setting.

    click does not parse the value: it means the same in a flag, a variable and the file, and an
    error names which of them is wrong.
    """
    about = definition.about
    if definition.secret:
        about += " Prefer the variable: other users of the machine can see arguments."
    extras = [f"env var: {', '.join(definition.variables)}"]
    if definition.default_text:
        extras.append(f"default: {definition.default_text}")
    return click.option(
        definition.flag,
        definition.name,
        metavar=definition.kind.metavar,
        help=f"{about}  [{'; '.join(extras)}]",
    )
