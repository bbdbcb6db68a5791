"""`mailgres alerts`: list firing alerts, change the rules, check from outside."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from mailgres import __version__, database, runbook
from mailgres import janitor as janitors
from mailgres.cli.commands.janitor import explained
from mailgres.cli.support.completion import names_of
from mailgres.cli.support.errors import Group
from mailgres.cli.support.operator import operator
from mailgres.cli.support.options import database_url as database_url_option
from mailgres.cli.support.options import dry_run as dry_run_option
from mailgres.cli.support.options import json_option, settings_options
from mailgres.cli.support.output import figure, print_rows, reader, time_cell
from mailgres.cli.support.tables import Column
from mailgres.cli.support.timeline import length
from mailgres.errors import UnknownAlertRule
from mailgres.values.kinds import Duration, suggestion

if TYPE_CHECKING:
    from mailgres.settings import Settings

_WINDOW = Duration("1s", "7d")
_SEVERITIES = ("info", "warning", "critical")
_HEAD = (
    "severity",
    "rule",
    "subject",
    "figure",
    "threshold",
    "since",
    Column("what to do", below="{}"),
)
_rule_argument = click.argument("rule", shell_complete=names_of("rules"))
_RULES_HEAD = ("rule", "threshold", "window", "least", "severity", Column("means", below="{}"))


@click.group(cls=Group)
def alerts() -> None:
    """List firing alerts and change the alert rules.

    Workers notify by log, email and webhook; `mailgres alerts explain RULE` says what to do.
    """


@alerts.command("list")
@json_option
@database_url_option
def list_(*, as_json_: bool, database_url: str | None) -> None:
    """List the alerts that are firing, the most severe first.

    \b
    Examples:
      mailgres alerts list
      mailgres alerts list --json | jq '.[] | select(.severity == "critical")'
    """
    with operator(database_url) as asked:
        found = asked.ask("alerts")
    print_rows(found, _HEAD, _row, json_=as_json_, empty="No alert is firing.")


@alerts.command()
@json_option
@database_url_option
def rules(*, as_json_: bool, database_url: str | None) -> None:
    """List the alert rules: when each fires and what it means.

    \b
    Example:
      mailgres alerts rules
    """
    with operator(database_url) as asked:
        found = asked.ask("alert_rules")
    print_rows(found, _RULES_HEAD, _rule, json_=as_json_)


@alerts.command()
@_rule_argument
def explain(*, rule: str) -> None:
    """Print what an alert means, what to check and what to do: its section of the runbook.

    It needs no database.

    \b
    Example:
      mailgres alerts explain circuit_open
    """
    sections = runbook.sections()
    if rule not in sections:
        meant = suggestion(rule, sections)
        hint = f"Did you mean {meant}? " if meant else ""
        raise UnknownAlertRule(
            f"There is no alert rule {rule!r}", f"{hint}`mailgres alerts rules` shows all."
        )
    click.echo(sections[rule])


@alerts.command("set")
@_rule_argument
@click.option("--threshold", type=float, metavar="NUMBER", help="The alert fires above this value.")
@click.option(
    "--window", type=reader(_WINDOW), metavar="DURATION", help="The time window of the figure."
)
@click.option("--severity", type=click.Choice(_SEVERITIES), help="The severity of the alert.")
@click.option("--on/--off", "enabled", default=None, help="Enable or disable the rule.")
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
    """Change an alert rule; options that are not given stay as they are.

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
    "--notify", is_flag=True, help="Also notify by log, email and webhook, as a worker does."
)
@settings_options("database_url", "alert_email", "alert_webhook", "alert_webhook_format")
def check(*, settings: Settings, notify: bool) -> None:
    """Exit with 1 and list the alerts if a critical alert is firing.

    Run it from cron, because dead workers do not notify. With --notify it also notifies as a worker
    does: once for each alert.

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
    """Enable the alert webhook again after failures disabled it.

    \b
    Example:
      mailgres alerts reset-webhook
    """
    with operator(database_url, dry_run=dry_run) as asked:
        (was_off,) = asked.ask("reset_webhook")
    click.echo("The webhook is enabled again." if was_off else "The webhook was not disabled.")


def _notify(settings: Settings) -> None:
    reported = janitors.AlertTargets.of(settings)
    worker = janitors.WorkerInfo("", __version__, alerts=reported)
    # Without a chunk it takes no dead letters to log: the log is that of the workers.
    notifier = replace(janitors.JANITORS["notify"], chunk=None)
    with explained(notifier):
        janitors.run(
            notifier, lambda: database.connect(settings.database_url, autocommit=True), worker
        )


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["severity"],
        one["rule"],
        one["subject"] or "-",
        figure(one["figure"], one["unit"]),
        f"{one['threshold']}",
        time_cell(one["since"]),
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
