"""`mailgres providers test`: are the credentials good? Nothing is sent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from mailgres.cli.options import settings_options
from mailgres.cli.show import as_json
from mailgres.errors import UnknownProvider
from mailgres.providers.accounts import open_provider
from mailgres.settings.kinds import suggestion

if TYPE_CHECKING:
    from mailgres.model import Result
    from mailgres.settings import Account, Settings

ADVICE = {
    "resend": "Make a key at https://resend.com/api-keys and set it",
    "ses": "Set the region and credentials that AWS's tools use, or a profile of theirs",
    "smtp": "Check host, port, user, password and tls of its URL",
}
"""What to do about credentials that are not good."""
LATER = "The provider cannot be asked now: try again"


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@settings_options("providers")
def test(*, settings: Settings, name: str | None, as_json_: bool) -> None:
    """Try the credentials of this process's settings, without sending anything.

    Exits with 1 if any of them are not good.

    \b
    Examples:
      mailgres providers test
      mailgres providers test resend-acme
    """
    accounts = [one for one in settings.accounts() if name in (None, one.name)]
    if not accounts:
        meant = suggestion(name or "", settings.providers)
        raise UnknownProvider(
            f"The settings name no provider {name!r}",
            f"Did you mean {meant}?" if meant else f"Add {name} to MAILGRES_PROVIDERS.",
        )
    settings.check_providers()
    results = {one.name: (one, _check(one, settings)) for one in accounts}
    if as_json_:
        as_json([_told(account, result) for account, result in results.values()])
    else:
        for account, result in results.values():
            _tell(account, result)
    if any(result.verdict != "sent" for _, result in results.values()):
        sys.exit(1)


def _check(account: Account, settings: Settings) -> Result:
    timeout = settings.provider_timeout.total_seconds()
    provider = open_provider(account, timeout=timeout, connections=1, keep=lambda _: None)
    try:
        return provider.check()
    finally:
        provider.close()


def _tell(account: Account, result: Result) -> None:
    if result.verdict == "sent":
        click.echo(f"{account.name}: good{f' ({result.message})' if result.message else ''}")
        return
    why = ": ".join(filter(None, (result.code, result.message)))
    click.echo(f"Error: {account.name}: {why or result.verdict}", err=True)
    click.echo(f"Hint: {_advice(account, result)}", err=True)


def _advice(account: Account, result: Result) -> str:
    of_account = result.verdict in ("config", "permanent")
    advice = ADVICE.get(account.kind, LATER) if of_account else LATER
    more = f"; `mailgres errors explain {result.code}` says more" if result.code else ""
    return f"{advice}{more}."


def _told(account: Account, result: Result) -> dict[str, object]:
    good = result.verdict == "sent"
    return {
        "provider": account.name,
        "kind": account.kind,
        "good": good,
        "class": None if good else result.verdict,
        "code": result.code,
        "message": result.message,
        "advice": None if good else _advice(account, result),
    }
