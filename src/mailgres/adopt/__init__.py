"""Take over a queue of emails that was written by hand.

How the parts fit, in the order in which a move uses them:

1. `reading` asks the database in a read-only transaction (`catalog.sql`) and returns values of
   `catalog`: tables, columns, constraints, functions, triggers, policies, jobs, a sample of rows.
2. `columns`, `statuses`, `known`, `tables` and `pgmq` decide on those values alone what each
   column and each status is, with the words of `vocabulary`. The result is a `Proposal`: a `Queue`
   of `mapping`, and a remark for every guess and every question.
3. `writers` finds who inserts and who processes; `faults` what is wrong, with the line that shows
   it.
4. `inspection` does all of it; `report` explains it in words.
5. `files` writes the mapping as `adopt.toml` and reads it back; `checking` compares it with the
   database. From there on the file alone counts: later steps take a `Mapping` without open
   questions and never look at the vocabulary again.
6. `expressions` turns a mapping into one query that says what becomes of each row (`rows.sql`), and
   `counting` counts by it. A move imports by the same query, so that it does what was counted.
7. `carrying` lists what a view cannot carry; `generated` turns a mapping into the view, functions
   and triggers (`move.sql`); `moving` creates them and imports, `undoing` gives everything back.
   `moves` reads and writes how far a move has come.
"""

from __future__ import annotations

from mailgres.adopt.checking import check
from mailgres.adopt.counting import Plan, count, plan_for
from mailgres.adopt.files import InvalidMapping, read, write
from mailgres.adopt.inspection import Inspection, inspect
from mailgres.adopt.mapping import ASK, NO_PLACE, Mapping, Queue, Source
from mailgres.adopt.moving import Options, move
from mailgres.adopt.report import report
from mailgres.adopt.undoing import undo

__all__ = [
    "ASK",
    "NO_PLACE",
    "Inspection",
    "InvalidMapping",
    "Mapping",
    "Options",
    "Plan",
    "Queue",
    "Source",
    "check",
    "count",
    "inspect",
    "move",
    "plan_for",
    "read",
    "report",
    "undo",
    "write",
]
