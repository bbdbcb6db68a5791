"""The janitors: what each does, how often and in which steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from mailgres import queries
from mailgres.janitor import notify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, LiteralString

    import psycopg

    Connect = Callable[[], AbstractContextManager[psycopg.Connection[Any]]]


@dataclass(frozen=True)
class AlertTargets:
    """Whom operators' news go to, besides the log."""

    email: str | None = None
    webhook: str | None = field(default=None, repr=False)
    webhook_format: str = "auto"


@dataclass(frozen=True, kw_only=True)
class Janitor:
    """One duty. `query` does a chunk of it and returns how many rows it handled."""

    name: str
    purpose: str
    every: timedelta
    query: LiteralString
    chunk: int | None = None
    """Rows handled by one call of the query; None if it is done with one call."""
    locked: bool = True
    """One at a time across all workers; otherwise each worker does it for itself."""

    after: Callable[[str, Sequence[Any], AlertTargets, Connect], None] | None = None
    """What is done with what the query returns besides, when it is committed."""

    @property
    def action(self) -> str:
        """What its log lines are called, and its lock."""
        return f"janitor.{self.name}"


def query(name: str) -> LiteralString:
    """Return the query of a janitor."""
    return queries.load("janitor/janitors.sql")[name]


# Makes waiting emails ready that are due, and ends those that expired meanwhile.
#
# Every second, 1000 emails at a time. A claim promotes first, too; this one is for emails that
# become due while all workers are busy or asleep.
PROMOTE = Janitor(
    name="promote",
    purpose="makes waiting emails ready that are due",
    every=timedelta(seconds=1),
    query=query("promote"),
    chunk=1000,
)

# Takes back the emails of workers that died.
#
# Every 5 seconds, 500 emails at a time.
REAP = Janitor(
    name="reap",
    purpose="takes back the emails of workers that died",
    every=timedelta(seconds=5),
    query=query("reap"),
    chunk=500,
)

# Ends waiting emails whose time is over.
#
# Every 15 seconds, 1000 emails at a time. None is sent late in between: a claim looks for itself.
EXPIRE = Janitor(
    name="expire",
    purpose="ends waiting emails whose time is over",
    every=timedelta(seconds=15),
    query=query("expire"),
    chunk=1000,
)

# Moves dead emails to the archive after their time in the queue, `dead_letter_ttl` (7 days).
#
# Every minute, 200 emails at a time: each takes its whole log along.
ARCHIVE_DEAD_LETTERS = Janitor(
    name="archive_dead_letters",
    purpose="moves emails to the archive that have been dead for long",
    every=timedelta(seconds=60),
    query=query("archive_dead_letters"),
    chunk=200,
)

# Deletes archived emails after their time in the archive, `archive_ttl` (90 days).
#
# Every minute, 500 emails at a time.
PURGE_ARCHIVE = Janitor(
    name="purge_archive",
    purpose="deletes archived emails whose time in the archive is over",
    every=timedelta(seconds=60),
    query=query("purge_archive"),
    chunk=500,
)

# Removes sent and cancelled emails after `sent_ttl` (90 days), with logs and attachments.
#
# Also what is left of emails that somebody deleted by hand. Every minute, 1000 emails at a time. A
# chunk looks at no more than 20,000 emails: where older ones have to stay, it goes on behind them
# the next time.
DELETE_EXPIRED_EMAILS = Janitor(
    name="delete_expired_emails",
    purpose="removes emails that were sent or cancelled long ago",
    every=timedelta(seconds=60),
    query=query("delete_expired_emails"),
    chunk=1000,
)

# Adds new counts to the rollups that the views for analysts read.
#
# Every 5 seconds, 10,000 deltas at a time.
FOLD_ROLLUPS = Janitor(
    name="fold_rollups",
    purpose="adds new counts to the rollups",
    every=timedelta(seconds=5),
    query=query("fold_rollups"),
    chunk=10_000,
)

# Counts what is open, for the views that show how much waits.
#
# Every 10 seconds, so that nobody sees figures that are older than 15. However many workers there
# are, it is counted once; and where there is so much that counting takes long, less often: it never
# takes more than a tenth of the time.
MEASURE_DEPTH = Janitor(
    name="measure_depth",
    purpose="counts what is open",
    every=timedelta(seconds=10),
    query=query("measure_depth"),
)

# Removes old counts: after `counts_ttl` (100 days), those of minutes after 8 days.
#
# Every 10 minutes, 10,000 at a time.
DELETE_EXPIRED_ROLLUPS = Janitor(
    name="delete_expired_rollups",
    purpose="removes counts that are too old to be asked for",
    every=timedelta(seconds=600),
    query=query("delete_expired_rollups"),
    chunk=10_000,
)

# Says that this worker lives.
#
# Every 10 seconds, one row, each worker for itself and so without a lock.
HEARTBEAT = Janitor(
    name="heartbeat",
    purpose="says that this worker lives",
    every=timedelta(seconds=10),
    query=query("heartbeat"),
    locked=False,
)

# Forgets workers that were not seen for a day, and sleepers that never woke.
#
# Every 10 minutes, 1000 rows at a time.
DELETE_STALE_WORKERS = Janitor(
    name="delete_stale_workers",
    purpose="forgets workers not seen for a day",
    every=timedelta(seconds=600),
    query=query("delete_stale_workers"),
    chunk=1000,
)

# Logs every email that died as `JobFailed`, whoever gave it up.
#
# A worker logs those whose last try it made at once. The others died of a crash, of their time, by
# a
# processor's report or by hand: a janitor finds them here.
LOG_DEAD_LETTERS = Janitor(
    name="log_dead_letters",
    purpose="logs emails that died, unless the worker of their last try did",
    every=timedelta(seconds=10),
    query=query("log_dead_letters"),
    chunk=1000,
    after=notify.log_dead_letters,
)

# Tells people of new dead letters.
#
# Every minute it counts them; at most every 15 minutes it tells: the operators of all, the contact
# of a tenant of its own. `mailgres.janitor.notify` says by which ways.
NOTIFY_DEAD_LETTERS = Janitor(
    name="notify_dead_letters",
    purpose="tells people of new dead letters",
    every=timedelta(seconds=60),
    query=query("notify_dead_letters"),
    chunk=10_000,
    after=notify.log_new_dead_letters,
)

# Finds which alerts fire and which are over, and tells people: once each.
#
# Every 30 seconds. The rules are rows of `mailgres.alert_rules`, what they look at is in
# `sql/30_engine/60_notify/20_alert_figures.sql`, and `mailgres.janitor.notify` says by which ways
# people are
# told.
CHECK_ALERTS = Janitor(
    name="check_alerts",
    purpose="tells people of alerts that fire and that are over",
    every=timedelta(seconds=30),
    query=query("check_alerts"),
    after=notify.log_alerts,
)

# Calls the alert webhook with news for operators.
#
# Every 5 seconds, at most five news at a time. A call has 10 seconds, whatever hangs; when one
# fails,
# the others wait for the next run, and it is tried twice more. Ten failures in a row switch the
# webhook off, which is an alert of its own. No transaction is open during a call.
DELIVER_NOTIFICATIONS = Janitor(
    name="deliver_notifications",
    purpose="calls the alert webhook with news",
    every=timedelta(seconds=5),
    query=query("deliver_notifications"),
    after=notify.post_notifications,
)

JANITORS = {
    janitor.name: janitor
    for janitor in (
        PROMOTE,
        REAP,
        EXPIRE,
        ARCHIVE_DEAD_LETTERS,
        PURGE_ARCHIVE,
        DELETE_EXPIRED_EMAILS,
        FOLD_ROLLUPS,
        MEASURE_DEPTH,
        DELETE_EXPIRED_ROLLUPS,
        HEARTBEAT,
        DELETE_STALE_WORKERS,
        LOG_DEAD_LETTERS,
        NOTIFY_DEAD_LETTERS,
        CHECK_ALERTS,
        DELIVER_NOTIFICATIONS,
    )
}
"""All janitors by name, which is that of the SQL function that each calls."""
