"""`mailgres providers test`: check credentials without sending anything."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from mailgres.cli.support.options import json_option, settings_options
from mailgres.cli.support.output import as_json
from mailgres.cli.support.tables import harmless
from mailgres.doctor.sending import advice, check_account
from mailgres.errors import UnknownProvider
from mailgres.values.kinds import suggestion

if TYPE_CHECKING:
    from mailgres.model import Result
    from mailgres.settings import Account, Settings


@click.command()
@click.argument("name", required=False)
@json_option
@settings_options("providers")
def test(*, settings: Settings, name: str | None, as_json_: bool) -> None:
    """Check the credentials in the settings of this shell without sending anything.

    If credentials cannot be checked, it says so: there are none, or they only allow sending. Exits
    with 1 if a provider does not accept its credentials.

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
    results = {one.name: (one, check_account(one, settings)) for one in accounts}
    if as_json_:
        as_json([_result_json(account, result) for account, result in results.values()])
    else:
        for account, result in results.values():
            _print_result(account, result)
    if any(result.verdict != "sent" for _, result in results.values()):
        sys.exit(1)


def _print_result(account: Account, result: Result) -> None:
    if result.untried:
        words = f"{account.name}: reached, credentials not checked: {result.untried}"
        click.echo(harmless(words))
        return
    if result.verdict == "sent":
        said = f" ({result.message})" if result.message else ""
        click.echo(harmless(f"{account.name}: valid{said}"))
        return
    why = ": ".join(filter(None, (result.code, result.message)))
    click.echo(harmless(f"Error: {account.name}: {why or result.verdict}"), err=True)
    click.echo(harmless(f"Hint: {advice(account, result)}"), err=True)


def _result_json(account: Account, result: Result) -> dict[str, object]:
    good = result.verdict == "sent"
    return {
        "provider": account.name,
        "kind": account.kind,
        "good": None if result.untried else good,
        "untried": result.untried,
        "class": None if good else result.verdict,
        "code": result.code,
        "message": result.message,
        "advice": None if good else advice(account, result),
    }
