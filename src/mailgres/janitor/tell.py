"""Tells people of new dead letters.

Every minute it counts them; at most every 15 minutes it tells: the operators of all, the contact
of a tenant of its own. `mailgres.janitor.channels` says by which ways.
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


def tell(notices: Sequence[dict[str, Any]], _alerts: Alerts, _connect: Connect) -> None:
    """Log what people are told."""
    for notice in notices:
        known = {key: notice[key] for key in ("event", "audience", "reasons")}
        logger.warning(
            "%s new dead letters (%s)",
            notice["new"],
            notice["audience"],
            extra={**known, "action": TELL.action, "emails": notice["new"]},
        )
        channels.log_mail(notice, TELL.action)


TELL = Janitor(
    name="tell",
    duty="tells people of new dead letters",
    every=timedelta(seconds=60),
    query=query("tell"),
    chunk=10_000,
    after=tell,
)
