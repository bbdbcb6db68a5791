"""`mailgres alerts`: see what fires, change the rules, watch from outside."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from mailgres import __version__, database
from mailgres import janitor as janitors
from mailgres.cli.commands.janitor import explained
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option, settings_options
from mailgres.cli.support.output import moment, print_rows, reader
from mailgres.cli.support.timeline import length
from mailgres.values.kinds import Duration

if TYPE_CHECKING:
    from mailgres.settings import Settings

_WINDOW = Duration("1s", "7d")
_SEVERITIES = ("info", "warning", "critical")
_HEAD = ("severity", "rule", "subject", "figure", "threshold", "since", "what to do")
_RULES_HEAD = ("rule", "threshold", "window", "least", "severity", "means")


@click.group()
def alerts() -> None:
    """See which alerts fire, and change when they do.

    Workers tell people by log, email and webhook; docs/runbook.md says what to do about each.
    """


@alerts.command("list")
@json_option
@database_url_option
def list_(*, as_json_: bool, database_url: str | None) -> None:
    """List the alerts that fire now, the most severe first.

    \b
    Examples:
      mailgres alerts list
      mailgres alerts list --json | jq '.[] | select(.severity == "critical")'
    """
    with operator(database_url) as asked:
        found = asked.ask("alerts")
    print_rows(found, _HEAD, _row, json_=as_json_, empty="Nothing fires.")


@alerts.command()
@json_option
@database_url_option
def rules(*, as_json_: bool, database_url: str | None) -> None:
    """List the rules: when each fires, and what that means.

    \b
    Example:
      mailgres alerts rules
    """
    with operator(database_url) as asked:
        found = asked.ask("alert_rules")
    print_rows(found, _RULES_HEAD, _rule, json_=as_json_)


@alerts.command("set")
@click.argument("rule")
@click.option("--threshold", type=float, metavar="NUMBER", help="Above this it fires.")
@click.option("--window", type=reader(_WINDOW), metavar="DURATION", help="The time looked at.")
@click.option("--severity", type=click.Choice(_SEVERITIES), help="How bad it is.")
@click.option("--on/--off", "enabled", default=None, help="Whether it fires at all.")
@dry_run_option
@database_url_option
def set_(
    *,
    rule: str,
    threshold: float | None,
    window: timedelta | None,
    severity: str | None,
    enabled: bool | None,
    dry_run: bool,
    database_url: str | None,
) -> None:
    """Change a rule; what is not named stays.

    \b
    Examples:
      mailgres alerts set failure_rate --threshold 5 --window 30m
      mailgres alerts set dead_tuples --off
    """
    given = {"threshold": threshold, "window": window, "severity": severity, "enabled": enabled}
    if all(value is None for value in given.values()):
        raise click.UsageError("Give --threshold, --window, --severity, --on or --off.")
    with operator(database_url, rule, dry_run=dry_run) as asked:
        (found,) = asked.ask("set_alert_rule", rule=rule, **given)
    _, limit, window_text, _, severity_text, _ = _rule(found)
    over = f" over {window_text}" if window_text != "-" else ""
    click.echo(f"{rule}: {limit}{over}, {severity_text}")


@alerts.command()
@click.option(
    "--notify", is_flag=True, help="Also tell by log, email and webhook, as a worker does."
)
@settings_options("database_url", "alert_email", "alert_webhook", "alert_webhook_format")
def check(*, settings: Settings, notify: bool) -> None:
    """Watch from outside: exit with 1 and say what fires if something critical does.

    For cron, because workers that are dead tell nobody. With --notify the alerts are also told as
    a worker tells them: each once.

    \b
    Example:
      */5 * * * * mailgres alerts check --notify
    """
    if notify:
        _notify(settings)
    with operator(settings.database_url) as asked:
        found = asked.ask("alerts")
    critical = [one for one in found if one["severity"] == "critical"]
    if critical:
        print_rows(critical, _HEAD, _row, json_=False)
        sys.exit(1)


@alerts.command("reset-webhook")
@dry_run_option
@database_url_option
def reset_webhook(*, dry_run: bool, database_url: str | None) -> None:
    """Call the alert webhook again after it was switched off for its failures.

    \b
    Example:
      mailgres alerts reset-webhook
    """
    with operator(database_url, dry_run=dry_run) as asked:
        (was_off,) = asked.ask("reset_webhook")
    click.echo("The webhook is called again." if was_off else "The webhook was not switched off.")


def _notify(settings: Settings) -> None:
    reported = janitors.AlertTargets(
        settings.alert_email, settings.alert_webhook, settings.alert_webhook_format
    )
    worker = janitors.WorkerInfo("", __version__, alerts=reported)
    for name in ("check_alerts", "deliver_notifications"):
        picked = janitors.JANITORS[name]
        with explained(picked):
            janitors.run(
                picked, lambda: database.connect(settings.database_url, autocommit=True), worker
            )


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["severity"],
        one["rule"],
        one["subject"] or "-",
        f"{one['figure']} {one['unit']}",
        f"{one['threshold']}",
        moment(one["since"]),
        one["what_to_do"],
    )


def _rule(one: dict[str, Any]) -> tuple[str, ...]:
    sign = "≥" if one["reaches"] else ">"
    severity = one["severity"] if one["enabled"] else "off"
    limit = f"{sign} {one['threshold']:g} {one['unit']}"
    return (
        one["name"],
        limit,
        length(timedelta(seconds=one["time_window"])) if one["time_window"] else "-",
        str(one["least"] or "-"),
        severity,
        one["means"],
    )
