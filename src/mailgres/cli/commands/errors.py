"""`mailgres errors`: what an error code means and what happens to the email."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from mailgres.cli.support.errors import Group
from mailgres.cli.support.options import json_option
from mailgres.cli.support.output import as_json
from mailgres.errors import MailgresError
from mailgres.providers.explain import explain as explanations_of
from mailgres.providers.explain import similar, when
from mailgres.sqlstates import with_sqlstate

if TYPE_CHECKING:
    from mailgres.providers.explain import Explanation


@click.group(cls=Group)
def errors() -> None:
    """Look up error codes."""


@errors.command()
@click.argument("code")
@json_option
def explain(*, code: str, as_json_: bool) -> None:
    """Explain what CODE means and what happens to the email.

    CODE is an error code of a provider, as in error_code of email_queue, an HTTP or SMTP status, an
    enhanced SMTP code, or a SQLSTATE of mailgres. Exits with 1 if the code is unknown.

    \b
    Examples:
      mailgres errors explain daily_quota_exceeded
      mailgres errors explain 5.1.1
      mailgres errors explain 429 --json
      mailgres errors explain MG001
    """
    found = _of_database(code) or [_of_provider(code, each) for each in explanations_of(code)]
    if not found:
        raise MailgresError(f"unknown error code {code!r}", _hint(code))
    if as_json_:
        as_json({"code": code, "explanations": found})
    else:
        click.echo("\n\n".join(_text(each) for each in found))


def _of_provider(code: str, found: Explanation) -> dict[str, Any]:
    rule = found.rule
    return {
        "provider": found.provider,
        "code": rule.code or code.strip(),
        "when": when(rule) or None,
        "class": rule.verdict,
        "scope": rule.scope,
        "meaning": rule.meaning,
        "consequence": found.consequence,
    }


def _of_database(code: str) -> list[dict[str, Any]]:
    """Return the errors of the database with this SQLSTATE."""
    return [
        {
            "provider": "mailgres",
            "code": cls.sqlstate,
            "exception": cls.__name__,
            "meaning": f"{cls.default_message()}.",
            "consequence": "Nothing was written: the call was refused as a whole.",
            "hint": cls.default_hint,
        }
        for cls in with_sqlstate()
        if cls.sqlstate == code.strip().upper()
    ]


def _text(found: dict[str, Any]) -> str:
    title = " ".join(filter(None, (found["code"], found.get("when"))))
    rows = {
        "exception": found.get("exception"),
        "class": _class(found),
        "meaning": found["meaning"],
        "what happens": found["consequence"],
        "what to do": found.get("hint"),
    }
    lines = [_row(name, value) for name, value in rows.items() if value]
    return "\n".join([f"{found['provider']}, {title}", *lines])


def _row(name: str, value: str) -> str:
    return textwrap.fill(
        value, 100, initial_indent=f"  {name + ':':14} ", subsequent_indent=" " * 17
    )


def _class(found: dict[str, Any]) -> str | None:
    if "class" not in found:
        return None
    scopes = {"sender": " (of one sender)", "account": " (of the whole account)"}
    return str(found["class"]) + scopes.get(found["scope"], "")


def _hint(code: str) -> str:
    meant = similar(code)
    unknown = "Errors with an unknown code count as transient and are retried."
    return f"Did you mean {' or '.join(meant)}? {unknown}" if meant else unknown
