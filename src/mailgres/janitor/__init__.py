"""The janitors: upkeep jobs that run at intervals, in any worker.

`JANITORS` is the table of them, `run` runs one once, `mailgres.janitor.scheduler` runs all of them
while a worker runs. Any number of workers may run: a janitor runs in one of them at a time.
"""

from __future__ import annotations

from mailgres.janitor.janitors import JANITORS, AlertTargets, Janitor
from mailgres.janitor.runner import Done, WorkerInfo, rehearse, run

__all__ = ["JANITORS", "AlertTargets", "Done", "Janitor", "WorkerInfo", "rehearse", "run"]
