"""Tells people of new dead letters, and when there are more than 100 or 10,000.

Every minute it counts them; at most every 15 minutes it tells: the operators by the log, by a
webhook and by an email through the queue, the contact of a tenant by an email about its own. The
webhook is called when all of that is committed, and whatever comes of it stops nobody.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import requests

from mailgres.janitor.duty import Alerts, Janitor, query
from mailgres.janitor.runner import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.janitor.duty import Connect

logger = logging.getLogger(__name__)

TIMEOUT = 10.0
"""Seconds that the webhook has to take the news, and as many to answer."""


def tell(notices: Sequence[dict[str, Any]], alerts: Alerts, connect: Connect) -> None:
    """Log what people are told, and call the webhook."""
    for notice in notices:
        _log(notice)
        if notice["webhook"] and alerts.webhook:
            ok = _post(alerts.webhook, notice)
            told = {"webhook": digest(alerts.webhook), "ok": ok, "alert_email": alerts.email}
            with connect() as connection, connection.transaction():
                row = connection.execute(query("note_webhook"), told).fetchone()
            if row and row[0]:
                logger.error(
                    "the alert webhook failed ten times in a row and is switched off",
                    extra={"action": TELL.action, "event": "WebhookOff"},
                )


def _log(notice: dict[str, Any]) -> None:
    known = {key: notice[key] for key in ("event", "audience", "total", "level", "reasons")}
    about = "" if notice["level"] == "none" else f"; {notice['level']}: {notice['total']} in all"
    logger.log(
        logging.WARNING if notice["level"] == "none" else logging.ERROR,
        "%s new dead letters (%s)%s",
        notice["new"],
        notice["audience"],
        about,
        extra={**known, "action": TELL.action, "emails": notice["new"]},
    )
    if notice["mail"]:
        logger.error(
            "the alert could not be enqueued: %s", notice["mail"], extra={"action": TELL.action}
        )


def _post(url: str, notice: dict[str, Any]) -> bool:
    """Call the webhook. Its URL is a secret, and the texts of errors have it."""
    news = {key: value for key, value in notice.items() if key not in ("mail", "webhook")}
    try:
        # Of the answer, the status is all that is read.
        with requests.post(
            url, json=news, timeout=TIMEOUT, allow_redirects=False, stream=True
        ) as answer:
            why = None if answer.ok and not answer.is_redirect else f"status {answer.status_code}"
    except (requests.RequestException, ValueError) as error:
        why = type(error).__name__
    if why:
        logger.warning("the alert webhook failed: %s", why, extra={"action": TELL.action})
    return why is None


TELL = Janitor(
    name="tell",
    duty="tells people of new dead letters",
    every=timedelta(seconds=60),
    query=query("tell"),
    chunk=10_000,
    after=tell,
)
