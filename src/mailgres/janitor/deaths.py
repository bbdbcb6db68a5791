"""Logs every email that died as `JobFailed`, whoever gave it up.

A worker logs those whose last try it made at once. The others died of a crash, of their time, by a
processor's report or by hand: a janitor finds them here.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from mailgres.janitor.duty import Alerts, Janitor, query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mailgres.janitor.duty import Connect

log = logging.getLogger(__name__)


def tell(deaths: Sequence[dict[str, Any]], _alerts: Alerts, _connect: Connect) -> None:
    """Log what was taken; nobody else will."""
    tell_dead(deaths, DEATHS.action)


def tell_dead(deaths: Sequence[dict[str, Any]], action: str) -> None:
    """Log emails that died, each in a line, without a word of the email."""
    for death in deaths:
        told = {"nextRetryDelay": None, "isRetryable": False, "action": action}
        log.error(
            "JobFailed: %s is dead: %s",
            death["jobId"],
            death["deadReason"],
            extra={**death, **told, "event": "JobFailed"},
        )


DEATHS = Janitor(
    name="deaths",
    duty="logs emails that died, unless the worker of their last try did",
    every=timedelta(seconds=10),
    query=query("deaths"),
    chunk=1000,
    after=tell,
)
