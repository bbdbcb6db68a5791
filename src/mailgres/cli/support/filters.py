"""Which emails a command is about: one set of options for listing, retrying and cancelling."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click
import psycopg
from psycopg.types.json import Jsonb

from mailgres.cli.support.output import moment
from mailgres.errors import MailgresError
from mailgres.values.kinds import BadValue, Duration, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable

    from mailgres.cli.support.operator import Operator

R = TypeVar("R")

STATUSES = ("pending", "sending", "sent", "failed", "cancelled")
REASONS = ("exhausted", "permanent", "expired", "uncertain", "crashed")
ALWAYS = "all"
DAY = timedelta(days=1)

_LENGTH = Duration("1s", "36500d")
_WHERE = {
    "template": "`mailgres templates list` shows all.",
    "tenant": "A tenant is known once it has an email or was set up.",
    "provider": "`mailgres providers list` shows all.",
}
"""Names that can be misspelt, and where the right ones are."""


@dataclass(frozen=True)
class Filter:
    """What a command's options leave of all emails; what is empty leaves nothing out."""

    status: tuple[str, ...] = ()
    template: tuple[str, ...] = ()
    tenant: tuple[str, ...] = ()
    recipient: tuple[str, ...] = ()
    error_code: tuple[str, ...] = ()
    provider: tuple[str, ...] = ()
    dead_reason: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def __bool__(self) -> bool:
        """Whether it leaves anything out."""
        return any(asdict(self).values())

    @property
    def json(self) -> Jsonb:
        """What the database's functions take."""
        given = {name: value for name, value in asdict(self).items() if value}
        return Jsonb(
            {n: v.isoformat() if isinstance(v, datetime) else list(v) for n, v in given.items()}
        )

    def describe(self) -> str:
        """Say it to a person."""
        parts = []
        for name, value in asdict(self).items():
            if isinstance(value, datetime):
                parts.append(f"{name} {moment(value.isoformat())}")
            elif value:
                parts.append(f"{name.replace('_', ' ')} {' or '.join(value)}")
        return ", ".join(parts) or "all emails"


def filter_options(
    default_since: timedelta | None = None, *, dead_letters: bool = False
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a command the options of a filter, and call it with `chosen`, a Filter.

    Without `--since` it looks back by `default_since`, or at everything. With `dead_letters` the
    options are those that are known of archived emails, and times are those of death.
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


def parse_past_time(
    context: click.Context | None, parameter: click.Parameter | None, given: str | None
) -> datetime | None:
    """Read a time: as long ago as `24h` or `7d` say, or one in ISO 8601, of the user's zone."""
    if given is None:
        return None
    now = datetime.now().astimezone()
    try:
        return now - _LENGTH.parse(given)
    except (BadValue, OverflowError):
        pass
    try:
        return datetime.fromisoformat(given).astimezone()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{given!r} is not a time. Give how long ago (30m, 24h, 7d) or a time such as"
            " 2026-01-31T09:00.",
            context,
            parameter,
        ) from None


def check_names(database: Operator, chosen: Filter) -> None:
    """Refuse a name that nobody knows, and suggest the nearest: for when nothing was found."""
    for what, where in _WHERE.items():
        for name in getattr(chosen, what):
            try:
                with database.savepoint():
                    known = database.ask(f"known_{what}s")
            except psycopg.errors.QueryCanceled:
                continue  # so many that nobody can say for sure
            if name not in known:
                meant = suggestion(name, known)
                hint = f"Did you mean {meant}? {where}" if meant else where
                raise MailgresError(f"Nothing is known of a {what} {name!r}", hint)


def _since(
    context: click.Context, parameter: click.Parameter, given: str | None
) -> datetime | str | None:
    if given == ALWAYS:
        return ALWAYS
    found = parse_past_time(context, parameter, given)
    if found and found > datetime.now().astimezone():
        raise click.BadParameter("that is in the future: nothing can match.", context, parameter)
    return found


def _filter(given: dict[str, Any], default_since: timedelta | None) -> Filter:
    since, until = given["since"], given["until"]
    if since is None and default_since:
        since = (until or datetime.now().astimezone()) - default_since
    since = None if since == ALWAYS else since
    if since and until and since >= until:
        raise click.UsageError("The time window ends before it begins: nothing can match.")
    if given["dead_reason"] and given.get("status") and "failed" not in given["status"]:
        raise click.UsageError("--reason is about dead emails: leave out --status, or give failed.")
    return Filter(**{**given, "since": since, "until": until})


def _options(default_since: timedelta | None, *, dead_letters: bool) -> list[Callable[[Any], Any]]:
    default = f"  [default: {_LENGTH.show(default_since)}]" if default_since else ""
    flag, event = ("--died-", "Died") if dead_letters else ("--", "Enqueued")
    return [
        *(_OPTIONS[name] for name in (_OF_DEAD_LETTERS if dead_letters else _OPTIONS)),
        click.option(
            f"{flag}since",
            "since",
            metavar="TIME",
            callback=_since,
            help=f"{event} since: 24h, 7d, 2026-01-31T09:00, or `all`.{default}",
        ),
        click.option(
            f"{flag}until",
            "until",
            metavar="TIME",
            callback=parse_past_time,
            help=f"{event} before this time.",
        ),
    ]


_OPTIONS = {
    "status": click.option(
        "--status",
        type=click.Choice(STATUSES, case_sensitive=False),
        multiple=True,
        help="With this status; `failed` means dead.",
    ),
    "template": click.option("--template", metavar="NAME", multiple=True, help="Of this template."),
    "tenant": click.option("--tenant", metavar="NAME", multiple=True, help="Of this tenant."),
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
        "--provider", metavar="NAME", multiple=True, help="Last attempted with this provider."
    ),
    "dead_reason": click.option(
        "--reason",
        "dead_reason",
        type=click.Choice(REASONS, case_sensitive=False),
        multiple=True,
        help="Dead for this reason. The options up to this one may be repeated.",
    ),
}
_OF_DEAD_LETTERS = ("template", "tenant", "error_code", "dead_reason")
