"""The janitors: what has to be done again and again, whoever does it.

Each duty has a module of its own that says how often it is done and in which steps. `run` does one
once; `mailgres.janitor.scheduler` does them all for as long as a worker runs. Any number of workers
may: a duty is done by one of them at a time.
"""

from __future__ import annotations

from mailgres.janitor.alerts import ALERTS
from mailgres.janitor.archive import ARCHIVE
from mailgres.janitor.deaths import DEATHS
from mailgres.janitor.depth import DEPTH
from mailgres.janitor.duty import Alerts, Janitor
from mailgres.janitor.expire import EXPIRE
from mailgres.janitor.forget import FORGET
from mailgres.janitor.heartbeat import HEARTBEAT
from mailgres.janitor.promote import PROMOTE
from mailgres.janitor.purge import PURGE
from mailgres.janitor.reap import REAP
from mailgres.janitor.retention import RETENTION
from mailgres.janitor.rollups import ROLLUPS
from mailgres.janitor.runner import Done, WorkerInfo, rehearse, run
from mailgres.janitor.tell import TELL
from mailgres.janitor.trim import TRIM
from mailgres.janitor.webhook import WEBHOOK

__all__ = ["JANITORS", "Alerts", "Done", "Janitor", "WorkerInfo", "rehearse", "run"]

JANITORS = {
    janitor.name: janitor
    for janitor in (
        PROMOTE,
        REAP,
        EXPIRE,
        ARCHIVE,
        PURGE,
        RETENTION,
        ROLLUPS,
        DEPTH,
        TRIM,
        HEARTBEAT,
        FORGET,
        DEATHS,
        TELL,
        ALERTS,
        WEBHOOK,
    )
}
"""All duties by name."""
