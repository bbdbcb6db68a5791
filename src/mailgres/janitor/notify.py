"""The ways by which people are told of what janitors find, whichever found it.

- The log: a line when what was found is committed. A worker that dies at that moment leaves none.
- Email, to `alert_email` or a tenant's contact: enqueued by the transaction that keeps that people
  were told, so exactly once.
- The webhook, for operators: `mailgres.notifications` keeps what it has to be called with until it
  was, so at least once; the janitor `deliver_notifications` does it, and nobody waits for it.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests

from mailgres import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.janitor.janitors import AlertTargets, Connect


logger = logging.getLogger(__name__)

OPERATORS = "operators"
_SLACK = ("hooks.slack.com", "hooks.slack-gov.com")
_SIGNS = {"critical": ":red_circle:", "warning": ":large_orange_circle:", "info": ":white_circle:"}


def log_mail(notice: dict[str, Any], action: str) -> None:
    """Say if an email about something could not be enqueued."""
    if notice["mail"]:
        logger.error(
            "the alert could not be enqueued: %s", notice["mail"], extra={"action": action}
        )


def line(event: str, alert: dict[str, Any]) -> str:
    """An alert in a line."""
    name = f"{alert['rule']} ({alert['subject']})" if alert["subject"] else str(alert["rule"])
    if event == "AlertResolved":
        return f"over: {name}"
    return (
        f"{alert['severity']}: {name}: {alert['figure']} {alert['unit']},"
        f" threshold {alert['threshold']}; see {alert['runbook']}"
    )


def body(url: str, form: str, notification: dict[str, Any]) -> dict[str, Any]:
    """What a webhook is called with: the news as they are, or as Slack wants a message."""
    host = (urlsplit(url).hostname or "").lower()
    is_slack = form == "slack" or (form == "auto" and host in _SLACK)
    return {"text": "\n".join(_lines(notification))} if is_slack else notification


def _lines(notification: dict[str, Any]) -> list[str]:
    if notification["event"] == "DeadLetters":
        return [
            f"mailgres: {notification['new']} new dead letters",
            *(
                _plain(f"• {each['emails']} of {each['template']}: {each['reason']}")
                + (_plain(f" ({each['code']})") if each["code"] else "")
                for each in notification["reasons"]
            ),
        ]
    more = [f"and {notification['more']} more"] if notification["more"] else []
    return [
        *(
            f"{_SIGNS[each['severity']]} {_plain(line('AlertFiring', each))}"
            for each in notification["firing"]
        ),
        *(
            f":large_green_circle: {_plain(line('AlertResolved', each))}"
            for each in notification["resolved"]
        ),
        *more,
    ]


def _plain(text: str) -> str:
    """Keep names from being read as links or as a call of everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def digest(webhook: str | None) -> str | None:
    """What the database knows of a webhook: whether it is the one that failed."""
    return hashlib.sha256(webhook.encode()).hexdigest()[:16] if webhook else None


def log_dead_letters(
    action: str, dead_letters: Sequence[dict[str, Any]], _alerts: AlertTargets, _connect: Connect
) -> None:
    """Log what was taken; nobody else will."""
    log_dead(dead_letters, action)


def log_dead(dead_letters: Sequence[dict[str, Any]], action: str) -> None:
    """Log emails that died, each in a line, without a word of the email."""
    for dead_letter in dead_letters:
        reported = {"nextRetryDelay": None, "isRetryable": False, "action": action}
        logger.error(
            "JobFailed: %s is dead: %s",
            dead_letter["jobId"],
            dead_letter["deadReason"],
            extra={**dead_letter, **reported, "event": "JobFailed"},
        )


def log_new_dead_letters(
    action: str, notices: Sequence[dict[str, Any]], _alerts: AlertTargets, _connect: Connect
) -> None:
    """Log what people are told."""
    for notice in notices:
        known = {key: notice[key] for key in ("event", "audience", "reasons")}
        logger.warning(
            "%s new dead letters (%s)",
            notice["new"],
            notice["audience"],
            extra={**known, "action": action, "emails": notice["new"]},
        )
        log_mail(notice, action)


_ALERT_LEVELS = {"critical": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO}
_ALERT_EVENTS = {"firing": "AlertFiring", "resolved": "AlertResolved"}
_ALERT_KEYS = ("rule", "subject", "severity", "figure", "threshold", "unit", "since")


def log_alerts(
    action: str, notices: Sequence[dict[str, Any]], _alerts: AlertTargets, _connect: Connect
) -> None:
    """Log a line for each alert; those of tenants are among those of the operators."""
    for notice in notices:
        log_mail(notice, action)
        if notice["audience"] != OPERATORS:
            continue
        for state, event in _ALERT_EVENTS.items():
            for alert in notice[state]:
                _log_alert(action, event, alert)
        if notice["more"]:
            about = {"action": action, "event": "Alerts", "more": notice["more"]}
            logger.warning("and %s more alerts: see email_alerts", notice["more"], extra=about)


def _log_alert(action: str, event: str, alert: dict[str, Any]) -> None:
    about = {key: alert[key] for key in _ALERT_KEYS} | {"action": action, "event": event}
    level = _ALERT_LEVELS[alert["severity"]] if event == _ALERT_EVENTS["firing"] else logging.INFO
    logger.log(level, "%s", line(event, alert), extra=about)


WEBHOOK_TIMEOUT_SECONDS = 10.0
"""Seconds that a call may take, from looking up its host to the status of the answer."""


def post_notifications(
    action: str, notifications: Sequence[dict[str, Any]], alerts: AlertTargets, connect: Connect
) -> None:
    """Call the webhook with each, in order, until one fails."""
    if alerts.webhook is None:
        return
    for each in notifications:
        why = _call(alerts.webhook, body(alerts.webhook, alerts.webhook_format, each))
        noted = {"webhook": digest(alerts.webhook), "ok": why is None, "notification": each["id"]}
        with connect() as connection, connection.transaction():
            row = connection.execute(
                queries.load("janitor/janitors.sql")["record_webhook_result"], noted
            ).fetchone()
        if why is None:
            continue
        logger.warning("the alert webhook failed: %s", why, extra={"action": action})
        if row and row[0]:
            logger.error(
                "the alert webhook failed ten times in a row and is switched off",
                extra={"action": action, "event": "WebhookOff"},
            )
        return


def _call(url: str, body: dict[str, Any]) -> str | None:
    """Call in a thread, which is left behind if it does not end in time.

    Time limits of sockets do not help against a name server that hangs, nor against an answer
    that comes byte by byte. Since ten failures are the most there can be, so are threads.
    """
    found: list[str | None] = []
    caller = threading.Thread(
        target=lambda: found.append(_post(url, body)), name="alert-webhook", daemon=True
    )
    caller.start()
    caller.join(WEBHOOK_TIMEOUT_SECONDS)
    return found[0] if found else f"no answer in {WEBHOOK_TIMEOUT_SECONDS:g} s"


def _post(url: str, body: dict[str, Any]) -> str | None:
    """Return why it failed, or None. The URL is a secret, and the texts of errors have it."""
    try:
        # Of the answer, the status is all that is read.
        with requests.post(
            url, json=body, timeout=WEBHOOK_TIMEOUT_SECONDS, allow_redirects=False, stream=True
        ) as answer:
            good = answer.ok and not answer.is_redirect
            return None if good else f"status {answer.status_code}"
    except (requests.RequestException, ValueError) as error:
        return type(error).__name__
