"""`mailgres webhooks`: try the webhooks of a running service."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mailgres.cli.support.errors import Group
from mailgres.cli.support.options import json_option, settings_options
from mailgres.cli.support.output import print_rows
from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from mailgres.settings import Settings

_HEAD = ("account", "event", "status", "result")


@click.group(cls=Group)
def webhooks() -> None:
    """Try the webhooks that providers call."""


@webhooks.command()
@click.argument("account", required=False)
@click.option("--url", metavar="URL", help="Where the service is, if not at serve_host:serve_port.")
@json_option
@settings_options("serve_host", "serve_port")
def test(*, settings: Settings, account: str | None, url: str | None, as_json_: bool) -> None:
    """Send signed samples through the webhooks of a running service, and say what it recorded.

    There is one sample of each event, for each account with a webhook secret in the settings, or
    only for ACCOUNT; `events` is the webhook for other providers. The samples are about an email
    that does not exist: they are `unmatched`, and deleted after a day. Only SNS can sign an event
    of SES, so for SES the address is checked. Exits with 1 if a sample is not accepted.

    \b
    Examples:
      mailgres webhooks test
      mailgres webhooks test resend --url https://mail.example.com
    """
    from mailgres.cli.support import webhook_samples as trial  # noqa: PLC0415 - needs an extra

    samples = [each for each in trial.samples_for(settings) if account in (None, each.account)]
    if not samples:
        raise MailgresError(
            f"The settings have no webhook secret{f' of {account}' if account else ''}",
            "Set resend_webhook_secret, ses_webhook_secret or events_secret: docs/events.md.",
        )
    base = url or f"http://{_host(settings.serve_host)}:{settings.serve_port}"
    found = [trial.send(base, each) for each in samples]
    print_rows(
        [asdict(each) for each in found],
        _HEAD,
        lambda row: tuple(str(row[name]) for name in _HEAD),
        json_=as_json_,
    )
    if not all(each.good for each in found):
        sys.exit(1)


def _host(given: str) -> str:
    """Return a host that can be called: a service that listens everywhere is here, too."""
    if given in {"0.0.0.0", "::"}:  # noqa: S104 - where it is called, not where it listens
        return "127.0.0.1"
    return f"[{given}]" if ":" in given else given
