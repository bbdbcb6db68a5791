"""The ways by which people are told of what janitors find, whichever found it.

- The log: a line when what was found is committed. A worker that dies at that moment leaves none.
- Email, to `alert_email` or a tenant's contact: enqueued by the transaction that keeps that people
  were told, so exactly once.
- The webhook, for operators: `mailgres.news` keeps what it has to be called with until it was, so
  at least once; the janitor `webhook` does it, and nobody waits for it.
"""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

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


def body(url: str, form: str, news: dict[str, Any]) -> dict[str, Any]:
    """What a webhook is called with: the news as they are, or as Slack wants a message."""
    host = (urlsplit(url).hostname or "").lower()
    is_slack = form == "slack" or (form == "auto" and host in _SLACK)
    return {"text": "\n".join(_lines(news))} if is_slack else news


def _lines(news: dict[str, Any]) -> list[str]:
    if news["event"] == "DeadLetters":
        return [
            f"mailgres: {news['new']} new dead letters",
            *(
                _plain(f"• {each['emails']} of {each['template']}: {each['reason']}")
                + (_plain(f" ({each['code']})") if each["code"] else "")
                for each in news["reasons"]
            ),
        ]
    more = [f"and {news['more']} more"] if news["more"] else []
    return [
        *(
            f"{_SIGNS[each['severity']]} {_plain(line('AlertFiring', each))}"
            for each in news["firing"]
        ),
        *(
            f":large_green_circle: {_plain(line('AlertResolved', each))}"
            for each in news["resolved"]
        ),
        *more,
    ]


def _plain(text: str) -> str:
    """Keep names from being read as links or as a call of everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
