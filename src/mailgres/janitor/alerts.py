"""Finds which alerts fire and which are over, and tells people: once each.

Every 30 seconds. The rules are rows of `mailgres.alert_rules`, what they look at is in
`sql/30_engine/96_alert_figures.sql`, and `mailgres.janitor.channels` says by which ways people are
told.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from mailgres.janitor import channels
from mailgres.janitor.duty import Alerts, Janitor, query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.janitor.duty import Connect

logger = logging.getLogger(__name__)

LEVELS = {"critical": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO}
EVENTS = {"firing": "AlertFiring", "resolved": "AlertResolved"}
KEYS = ("rule", "subject", "severity", "figure", "threshold", "unit", "since")


def tell(notices: Sequence[dict[str, Any]], _alerts: Alerts, _connect: Connect) -> None:
    """Log a line for each alert; those of tenants are among those of the operators."""
    for notice in notices:
        channels.log_mail(notice, ALERTS.action)
        if notice["audience"] != channels.OPERATORS:
            continue
        for state, event in EVENTS.items():
            for alert in notice[state]:
                _log(event, alert)
        if notice["more"]:
            about = {"action": ALERTS.action, "event": "Alerts", "more": notice["more"]}
            logger.warning("and %s more alerts: see email_alerts", notice["more"], extra=about)


def _log(event: str, alert: dict[str, Any]) -> None:
    about = {key: alert[key] for key in KEYS} | {"action": ALERTS.action, "event": event}
    level = LEVELS[alert["severity"]] if event == EVENTS["firing"] else logging.INFO
    logger.log(level, "%s", channels.line(event, alert), extra=about)


ALERTS = Janitor(
    name="alerts",
    duty="tells people of alerts that fire and that are over",
    every=timedelta(seconds=30),
    query=query("alerts"),
    after=tell,
)
