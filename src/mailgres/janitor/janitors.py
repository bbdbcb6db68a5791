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
    from typing import Any, LiteralString, Self

    import psycopg

    from mailgres.settings import Settings

    Connect = Callable[[], AbstractContextManager[psycopg.Connection[Any]]]
    After = Callable[[str, Sequence[Any], "AlertTargets", Connect], None]


@dataclass(frozen=True)
class AlertTargets:
    """Where notifications for operators go, besides the log."""

    email: str | None = None
    webhook: str | None = field(default=None, repr=False)
    webhook_format: str = "auto"

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the targets that settings name."""
        return cls(settings.alert_email, settings.alert_webhook, settings.alert_webhook_format)


@dataclass(frozen=True, kw_only=True)
class Janitor:
    """An upkeep job. `query` does a chunk of it and returns how many rows it handled."""

    name: str
    purpose: str
    every: timedelta
    query: LiteralString
    chunk: int | None = None
    """Rows handled by one call of the query; None if it is done with one call."""
    locked: bool = True
    """Runs in one worker at a time; otherwise each worker runs it for itself."""

    after: After | None = None
    """Gets the further columns that the query returned, row by row, after the commit."""

    @property
    def action(self) -> str:
        """Return the name of its log lines and of its lock."""
        return f"janitor.{self.name}"


def query(name: str) -> LiteralString:
    """Return the query of a janitor."""
    return queries.load("janitor/janitors.sql")[name]


def _janitor(
    name: str,
    purpose: str,
    *,
    seconds: int,
    chunk: int | None = None,
    locked: bool = True,
    after: After | None = None,
) -> Janitor:
    return Janitor(
        name=name,
        purpose=purpose,
        every=timedelta(seconds=seconds),
        query=query(name),
        chunk=chunk,
        locked=locked,
        after=after,
    )


_TABLE = (
    # Every claim promotes first, too; the janitor is for emails that become due while all workers
    # are busy or asleep.
    _janitor("promote", "makes waiting emails ready when they are due", seconds=1, chunk=1000),
    # The lease of a dead worker expires; nothing else says that it died.
    _janitor("reap", "takes back the emails of workers that died", seconds=5, chunk=500),
    # No email is sent late in between: a claim checks the expiry, too.
    _janitor("expire", "marks waiting emails as dead when they expire", seconds=15, chunk=1000),
    # After `dead_letter_ttl` (7 days). Few at a time: each is archived with its whole log.
    _janitor(
        "archive_dead_letters", "moves old dead letters to the archive", seconds=60, chunk=200
    ),
    # After `archive_ttl` (90 days).
    _janitor("purge_archive", "deletes archived emails that have expired", seconds=60, chunk=500),
    # After `sent_ttl` (90 days), with logs and attachments, and what is left of emails that were
    # deleted by hand. A chunk reads at most 20,000 emails: where older ones have to stay, the next
    # chunk goes on behind them.
    _janitor(
        "delete_expired_emails",
        "deletes emails that were sent or cancelled long ago",
        seconds=60,
        chunk=1000,
    ),
    # The operator's page runs it, too, so that an action goes on while no worker runs.
    _janitor(
        "run_bulk_actions",
        "retries, cancels or reschedules the emails of bulk actions",
        seconds=2,
        chunk=200,
    ),
    # As the webhook of a provider would.
    _janitor(
        "report_captured",
        "records the events that the provider capture simulates",
        seconds=1,
        chunk=100,
    ),
    # After `captured_ttl` (7 days), and the oldest attachments beyond `captured_bytes` (256 MiB).
    _janitor(
        "delete_captured", "deletes captured messages that have expired", seconds=60, chunk=500
    ),
    # The views for analysts add the deltas that are not folded yet, which is slower.
    _janitor("fold_rollups", "adds new counts to the rollups", seconds=5, chunk=10_000),
    # So that no figure in the views is older than 15 seconds. All workers together count once. If
    # counting takes long, it runs less often: at most a tenth of the time.
    _janitor("measure_depth", "counts the emails that are not settled", seconds=10),
    # After `counts_ttl` (100 days); counts per minute after 8 days.
    _janitor("delete_expired_rollups", "deletes old counts", seconds=600, chunk=10_000),
    # An event whose email is not found within a day is deleted.
    _janitor(
        "match_email_events",
        "matches events of providers with emails that were not known yet",
        seconds=5,
        chunk=1000,
    ),
    # They have no effect any more; a week later nobody asks why an email was cancelled.
    _janitor(
        "delete_expired_suppressions",
        "deletes suppressions that expired a week ago",
        seconds=600,
        chunk=1000,
    ),
    # One row for each worker, so no lock is needed.
    _janitor("heartbeat", "records that this worker is alive", seconds=10, locked=False),
    # With the entries of sleeping workers that never woke up.
    _janitor(
        "delete_stale_workers",
        "deletes workers that were not seen for a day",
        seconds=600,
        chunk=1000,
    ),
    # The alert rules are rows of `mailgres.alert_rules`; `mailgres.janitor.notify` describes the
    # channels. Calls of the webhook end before the next run is due, however slow it is.
    _janitor(
        "notify",
        "logs dead letters, and notifies people of them and of alerts",
        seconds=30,
        chunk=1000,
        after=notify.report,
    ),
)
JANITORS = {janitor.name: janitor for janitor in _TABLE}
"""All janitors by name, which is the name of the SQL function that each calls."""
