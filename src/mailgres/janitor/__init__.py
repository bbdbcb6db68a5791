"""The janitors: upkeep that has to be done again and again, by whichever worker.

`janitors` is the table of them, `run` does one once; `mailgres.janitor.scheduler` does them all
for as long as a worker runs. Any number of workers may: a janitor runs in one of them at a time.
"""

from __future__ import annotations

from mailgres.janitor.janitors import JANITORS, AlertTargets, Janitor
from mailgres.janitor.runner import Done, WorkerInfo, rehearse, run

__all__ = ["JANITORS", "AlertTargets", "Done", "Janitor", "WorkerInfo", "rehearse", "run"]
