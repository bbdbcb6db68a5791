"""The channels by which people are notified of alerts and dead letters.

- The log: a line after the commit. A worker that dies at that moment writes none.
- Email, to `alert_email` or the contact of a tenant: enqueued in the transaction that marks people
  as notified, so exactly once.
- The webhook, for operators: a notification stays in `mailgres.notifications` until a call
  succeeds, so at least once.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests

from mailgres import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.janitor.janitors import AlertTargets, Connect


logger = logging.getLogger(__name__)

WEBHOOK_TIMEOUT_SECONDS = 10.0
"""Seconds that a call may take, from looking up its host to the status of the answer."""

_SLACK = ("hooks.slack.com", "hooks.slack-gov.com")
_SIGNS = {"critical": ":red_circle:", "warning": ":large_orange_circle:", "info": ":white_circle:"}
_LEVELS = {"critical": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO}
_ALERT_KEYS = ("rule", "subject", "severity", "figure", "threshold", "unit", "since")


def report(
    action: str, rows: Sequence[Sequence[Any]], alerts: AlertTargets, connect: Connect
) -> None:
    """Log what the notifier found, then call the webhook."""
    for to_log, _ in rows:
        for one in to_log:
            _LOG[one["event"]](one, action)
    if alerts.webhook:
        to_post = [one for _, each in rows for one in each]
        _post_all(to_post, alerts.webhook, alerts.webhook_format, action, connect)


def log_dead_letter(dead_letter: dict[str, Any], action: str) -> None:
    """Log a dead letter in one line, without any content of the email."""
    reported = {"nextRetryDelay": None, "isRetryable": False, "action": action}
    logger.error(
        "JobFailed: %s is dead: %s",
        dead_letter["jobId"],
        dead_letter["deadReason"],
        extra={**dead_letter, **reported},
    )


def _log_new_dead_letters(notification: dict[str, Any], action: str) -> None:
    known = {key: notification[key] for key in ("event", "audience", "reasons")}
    logger.warning(
        "%s new dead letters (%s)",
        notification["new"],
        notification["audience"],
        extra={**known, "action": action, "emails": notification["new"]},
    )
    _log_mail_error(notification, action)


def _log_alerts(notification: dict[str, Any], action: str) -> None:
    """Log a line for each alert; the operators' notification has those of all tenants."""
    _log_mail_error(notification, action)
    if notification["audience"] != "operators":
        return
    for alert in notification["firing"]:
        _log_alert(_LEVELS[alert["severity"]], "AlertFiring", alert, action)
    for alert in notification["resolved"]:
        _log_alert(logging.INFO, "AlertResolved", alert, action)
    if notification["more"]:
        about = {"action": action, "event": "Alerts", "more": notification["more"]}
        logger.warning("and %s more alerts: see email_alerts", notification["more"], extra=about)


def _log_alert(level: int, event: str, alert: dict[str, Any], action: str) -> None:
    about = {key: alert[key] for key in _ALERT_KEYS} | {"action": action, "event": event}
    logger.log(level, "%s", _line(event, alert), extra=about)


def _log_mail_error(notification: dict[str, Any], action: str) -> None:
    if why := notification["mail_error"]:
        logger.error("the alert could not be enqueued: %s", why, extra={"action": action})


_LOG = {
    "JobFailed": log_dead_letter,
    "DeadLetters": _log_new_dead_letters,
    "Alerts": _log_alerts,
}


def _line(event: str, alert: dict[str, Any]) -> str:
    name = f"{alert['rule']} ({alert['subject']})" if alert["subject"] else str(alert["rule"])
    if event == "AlertResolved":
        return f"resolved: {name}"
    return (
        f"{alert['severity']}: {name}: {alert['figure']} {alert['unit']},"
        f" threshold {alert['threshold']}; see {alert['runbook']}"
    )


def body(url: str, form: str, notification: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON for the webhook: the notification itself, or a message for Slack."""
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
            f"{_SIGNS[each['severity']]} {_plain(_line('AlertFiring', each))}"
            for each in notification["firing"]
        ),
        *(
            f":large_green_circle: {_plain(_line('AlertResolved', each))}"
            for each in notification["resolved"]
        ),
        *more,
    ]


def _plain(text: str) -> str:
    """Escape names that Slack would read as links or as a mention of everyone."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def digest(webhook: str | None) -> str | None:
    """Return what the database stores of a webhook: enough to know which one failed."""
    return hashlib.sha256(webhook.encode()).hexdigest()[:16] if webhook else None


def _post_all(
    notifications: Sequence[dict[str, Any]], url: str, form: str, action: str, connect: Connect
) -> None:
    """Call the webhook with each, in order, until one fails or the time is up.

    The others stay in the database, and a notifier takes them a minute later.
    """
    deadline = time.monotonic() + WEBHOOK_TIMEOUT_SECONDS
    for each in notifications:
        if time.monotonic() >= deadline:
            return
        why = _call(url, body(url, form, each))
        result = {"webhook": digest(url), "ok": why is None, "notification": each["id"]}
        with connect() as connection, connection.transaction():
            record = queries.load("janitor/janitors.sql")["record_webhook_result"]
            row = connection.execute(record, result).fetchone()
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
    """Call in a thread, which is left behind if it does not end in time; return the error.

    Socket timeouts do not help against a name server that hangs, nor against an answer that
    arrives byte by byte. Ten failures switch the webhook off, so there are at most ten threads.
    """
    found: list[str | None] = []
    caller = threading.Thread(
        target=lambda: found.append(_post(url, body)), name="alert-webhook", daemon=True
    )
    caller.start()
    caller.join(WEBHOOK_TIMEOUT_SECONDS)
    return found[0] if found else f"no answer in {WEBHOOK_TIMEOUT_SECONDS:g} s"


def _post(url: str, body: dict[str, Any]) -> str | None:
    """Return the error without its text, which contains the URL, a secret; None for success."""
    try:
        # Only the status of the answer is read.
        with requests.post(
            url, json=body, timeout=WEBHOOK_TIMEOUT_SECONDS, allow_redirects=False, stream=True
        ) as answer:
            good = answer.ok and not answer.is_redirect
            return None if good else f"status {answer.status_code}"
    except (requests.RequestException, ValueError) as error:
        return type(error).__name__
