"""The filter of commands that list or change emails: one set of options."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click
import psycopg
from psycopg.types.json import Jsonb

from mailgres.cli.support.completion import names_of
from mailgres.cli.support.output import moment, when
from mailgres.errors import MailgresError
from mailgres.values.kinds import BadValue, Duration, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable

    from mailgres.cli.support.operator import Operator

R = TypeVar("R")

STATUSES = ("pending", "sending", "sent", "failed", "dead", "cancelled")
DEAD = "dead"
"""Another word for the status `failed`."""
REASONS = ("exhausted", "permanent", "expired", "uncertain", "crashed")
ALWAYS = "all"
DAY = timedelta(days=1)

_LENGTH = Duration("1s", "36500d")
_WHERE = {
    "template": "`mailgres templates list` shows all.",
    "tenant": "A tenant is known when it has an email or settings.",
    "provider": "`mailgres providers list` shows all.",
}
"""Names that can be misspelt, and what lists the known ones."""


@dataclass(frozen=True)
class Filter:
    """Conditions on emails; an empty field is no condition."""

    status: tuple[str, ...] = ()
    template: tuple[str, ...] = ()
    tenant: tuple[str, ...] = ()
    recipient: tuple[str, ...] = ()
    error_code: tuple[str, ...] = ()
    provider: tuple[str, ...] = ()
    dead_reason: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    died_since: datetime | None = None
    died_until: datetime | None = None

    @property
    def only_dead(self) -> bool:
        """Return whether a condition holds for dead emails only."""
        return bool(self.dead_reason or self.died_since or self.died_until)

    def __bool__(self) -> bool:
        """Return whether there is any condition."""
        return any(asdict(self).values())

    @property
    def json(self) -> Jsonb:
        """Return the filter as the functions of the database expect it."""
        given = {name: value for name, value in asdict(self).items() if value}
        return Jsonb(
            {n: v.isoformat() if isinstance(v, datetime) else list(v) for n, v in given.items()}
        )

    def describe(self) -> str:
        """Describe the filter in words."""
        parts = []
        for name, value in asdict(self).items():
            if isinstance(value, datetime):
                parts.append(f"{name.replace('_', ' ')} {moment(value.isoformat())}")
            elif value:
                parts.append(f"{name.replace('_', ' ')} {' or '.join(value)}")
        return ", ".join(parts) or "all emails"


def filter_options(
    default_since: timedelta | None = None, *, dead_letters: bool = False
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a command the options of a filter, and call it with `chosen`, a Filter.

    Without `--since` it looks back by `default_since`, or at everything. With `dead_letters` there
    is no `--status`.
    """

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def with_filter(**given: Any) -> R:  # noqa: ANN401 - what click gives
            mine = {one.name: given.pop(one.name) for one in fields(Filter) if one.name in given}
            return command(chosen=_filter(mine, default_since), **given)

        decorated: Callable[..., R] = with_filter
        for option in reversed(_options(default_since, dead_letters=dead_letters)):
            decorated = option(decorated)
        return decorated

    return decorate


def past_time(given: str) -> datetime:
    """Read a past time: an age (`24h`, `7d`), or ISO 8601 in the user's time zone."""
    try:
        return datetime.now().astimezone() - _LENGTH.parse(given)
    except (BadValue, OverflowError):
        return when(given, "an age (30m, 24h, 7d) or a time such as 2026-01-31T09:00")


def check_names(database: Operator, chosen: Filter) -> None:
    """Refuse an unknown name and suggest the nearest; call it when nothing was found."""
    for what, where in _WHERE.items():
        for name in getattr(chosen, what):
            try:
                with database.savepoint():
                    known = database.ask(f"known_{what}s")
            except psycopg.errors.QueryCanceled:
                continue  # too many to list them in time
            if name not in known:
                meant = suggestion(name, known)
                hint = f"Did you mean {meant}? {where}" if meant else where
                raise MailgresError(f"There is no {what} {name!r}", hint)


def _since(given: str) -> datetime | str:
    if given == ALWAYS:
        return ALWAYS
    found = past_time(given)
    if found > datetime.now().astimezone():
        raise click.BadParameter("it is in the future: nothing can match.")
    return found


def _filter(given: dict[str, Any], default_since: timedelta | None) -> Filter:
    if given["since"] is None and default_since and not given["died_since"]:
        given["since"] = (given["until"] or datetime.now().astimezone()) - default_since
    for start, end in (("since", "until"), ("died_since", "died_until")):
        given[start] = None if given[start] == ALWAYS else given[start]
        if given[start] and given[end] and given[start] >= given[end]:
            raise click.UsageError("The time window ends before it begins: nothing can match.")
    statuses = ("failed" if one == DEAD else one for one in given.get("status", ()))
    chosen = Filter(**{**given, "status": tuple(dict.fromkeys(statuses))})
    if chosen.only_dead and chosen.status and "failed" not in chosen.status:
        flag = "--reason" if chosen.dead_reason else "--died-since and --died-until"
        verb = "selects" if chosen.dead_reason else "select"
        raise click.UsageError(f"{flag} {verb} dead emails: leave out --status, or give failed.")
    return chosen


def _options(default_since: timedelta | None, *, dead_letters: bool) -> list[Callable[[Any], Any]]:
    default = f"  [default: {_LENGTH.show(default_since)}]" if default_since else ""
    return [
        *(option for name, option in _OPTIONS.items() if name != "status" or not dead_letters),
        *_window("", "Enqueued", default),
        *_window("died-", "Died", ""),
    ]


def _window(flag: str, event: str, default: str) -> list[Callable[[Any], Any]]:
    return [
        click.option(
            f"--{flag}since",
            metavar="TIME",
            type=_since,
            help=f"{event} since: 24h, 7d, 2026-01-31T09:00, or `all`.{default}",
        ),
        click.option(
            f"--{flag}until", metavar="TIME", type=past_time, help=f"{event} before this time."
        ),
    ]


_OPTIONS = {
    "status": click.option(
        "--status",
        type=click.Choice(STATUSES, case_sensitive=False),
        multiple=True,
        help="With this status; `dead` is another word for `failed`.",
    ),
    "template": click.option(
        "--template",
        metavar="NAME",
        multiple=True,
        shell_complete=names_of("templates"),
        help="Of this template.",
    ),
    "tenant": click.option(
        "--tenant",
        metavar="NAME",
        multiple=True,
        shell_complete=names_of("tenants"),
        help="Of this tenant.",
    ),
    "recipient": click.option(
        "--recipient",
        metavar="ADDRESS|@DOMAIN",
        multiple=True,
        help="To this address, or to any address of a domain.",
    ),
    "error_code": click.option(
        "--error-code",
        metavar="CODE",
        multiple=True,
        help="With this code of the last error; `none`: without a code.",
    ),
    "provider": click.option(
        "--provider",
        metavar="NAME",
        multiple=True,
        shell_complete=names_of("providers"),
        help="Last attempted with this provider.",
    ),
    "dead_reason": click.option(
        "--reason",
        "dead_reason",
        type=click.Choice(REASONS, case_sensitive=False),
        multiple=True,
        help="Dead for this reason. The options up to this one may be repeated.",
    ),
}
