"""Calls the alert webhook with news for operators.

Every 5 seconds, at most five news at a time. A call has 10 seconds, whatever hangs; when one fails,
the others wait for the next run, and it is tried twice more. Ten failures in a row switch the
webhook off, which is an alert of its own. No transaction is open during a call.
"""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import requests

from mailgres.janitor import channels
from mailgres.janitor.duty import Alerts, Janitor, query
from mailgres.janitor.runner import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.janitor.duty import Connect

logger = logging.getLogger(__name__)

TIMEOUT = 10.0
"""Seconds that a call may take, from looking up its host to the status of the answer."""


def post(news: Sequence[dict[str, Any]], alerts: Alerts, connect: Connect) -> None:
    """Call the webhook with each, in order, until one fails."""
    if alerts.webhook is None:
        return
    for each in news:
        why = _call(alerts.webhook, channels.body(alerts.webhook, alerts.webhook_format, each))
        noted = {"webhook": digest(alerts.webhook), "ok": why is None, "news": each["id"]}
        with connect() as connection, connection.transaction():
            row = connection.execute(query("note_webhook"), noted).fetchone()
        if why is None:
            continue
        logger.warning("the alert webhook failed: %s", why, extra={"action": WEBHOOK.action})
        if row and row[0]:
            logger.error(
                "the alert webhook failed ten times in a row and is switched off",
                extra={"action": WEBHOOK.action, "event": "WebhookOff"},
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
    caller.join(TIMEOUT)
    return found[0] if found else f"no answer in {TIMEOUT:g} s"


def _post(url: str, body: dict[str, Any]) -> str | None:
    """Return why it failed, or None. The URL is a secret, and the texts of errors have it."""
    try:
        # Of the answer, the status is all that is read.
        with requests.post(
            url, json=body, timeout=TIMEOUT, allow_redirects=False, stream=True
        ) as answer:
            good = answer.ok and not answer.is_redirect
            return None if good else f"status {answer.status_code}"
    except (requests.RequestException, ValueError) as error:
        return type(error).__name__


WEBHOOK = Janitor(
    name="webhook",
    duty="calls the alert webhook with news",
    every=timedelta(seconds=5),
    query=query("webhook"),
    after=post,
)
