"""Find who inserts into a queue and who processes it: functions, triggers, cron jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mailgres.adopt.catalog import line_with

if TYPE_CHECKING:
    from mailgres.adopt.catalog import Catalog, Function, Job, Table, Trigger

_EDGE: Final = re.compile(r"/functions/v1/([\w-]+)")
_HTTP_ADDRESS: Final = re.compile(r"https?://[^'\"\s]+")
_ABOUT_MAIL: Final = re.compile(r"e?mail|correo|queue|notif", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Writers:
    """Who touches a queue."""

    inserting: tuple[Function, ...]
    """Functions that insert, by themselves or through another; no trigger functions."""
    inserting_triggers: tuple[Trigger, ...]
    changing: tuple[Function, ...]
    """Functions that update or delete rows, and insert none."""
    changing_triggers: tuple[Trigger, ...]
    own_triggers: tuple[Trigger, ...]
    """Triggers of the queue itself."""
    jobs: tuple[Job, ...]


def writers(table: Table, catalog: Catalog) -> Writers:
    """Return who touches a table, by reading the source of functions and cron jobs."""
    inserting = _callers(catalog, {f.oid for f in catalog.functions if inserts(f, table)})
    changes = _callers(catalog, {f.oid for f in catalog.functions if changes_rows(f, table)})
    elsewhere = [each for each in catalog.triggers if each.table != table.full_name]
    return Writers(
        inserting=tuple(f for f in catalog.functions if f.oid in inserting and not f.for_trigger),
        inserting_triggers=tuple(each for each in elsewhere if each.function in inserting),
        changing=tuple(
            f for f in catalog.functions if f.oid in changes - inserting and not f.for_trigger
        ),
        changing_triggers=tuple(each for each in elsewhere if each.function in changes),
        own_triggers=tuple(each for each in catalog.triggers if each.table == table.full_name),
        jobs=tuple(each for each in catalog.jobs if processes(each, table, catalog)),
    )


def inserts(function: Function, table: Table) -> bool:
    """Return whether a function inserts into the table itself."""
    if table.schema == "pgmq" and re.search(r"\bpgmq\.\"?send", function.code):
        return function.schema != "pgmq"
    return _writes(function.code, r"INSERT\s+INTO", table)


def changes_rows(function: Function, table: Table) -> bool:
    """Return whether a function updates or deletes rows of the table itself."""
    if table.schema == "pgmq" and function.schema != "pgmq":
        return bool(re.search(r"\bpgmq\.\"?(?:read|delete|archive|pop|set_vt)", function.code))
    return _writes(function.code, r"(?:UPDATE|DELETE\s+FROM)(?:\s+ONLY)?", table)


def inserting_line(function: Function, table: Table) -> str | None:
    """Return the line of a function that inserts."""
    return line_with(function.source, rf"INSERT\s+INTO\s+{_name(table)}")


def processes(job: Job, table: Table, catalog: Catalog) -> bool:
    """Return whether a job seems to process the queue: its table, its functions, an endpoint."""
    if _mentions(job.command, table):
        return True
    touching = [f for f in catalog.functions if inserts(f, table) or changes_rows(f, table)]
    if any(_calls(job.command, each) for each in touching):
        return True
    return any(_ABOUT_MAIL.search(each) for each in endpoints(job))


def endpoints(job: Job) -> list[str]:
    """Return the edge functions or addresses that a job calls."""
    return _EDGE.findall(job.command) or _HTTP_ADDRESS.findall(job.command)


def _callers(catalog: Catalog, found: set[int]) -> set[int]:
    """Return the functions, and those that call them, at any distance."""
    by_oid = {each.oid: each for each in catalog.functions}
    while True:
        callees = [by_oid[oid] for oid in found]
        more = {
            f.oid
            for f in catalog.functions
            if f.oid not in found and any(_calls(f.code, callee) for callee in callees)
        }
        if not more:
            return found
        found = found | more


def _calls(code: str, function: Function) -> bool:
    if function.for_trigger:
        return False
    return bool(re.search(rf"(?<![\w$]){re.escape(function.name)}\"?\s*\(", code))


def _writes(code: str, verb: str, table: Table) -> bool:
    return bool(re.search(rf"\b{verb}\s+{_name(table)}", code, re.IGNORECASE))


def _mentions(code: str, table: Table) -> bool:
    return bool(re.search(rf"(?<![\w$]){re.escape(table.name)}(?![\w$])", code))


def _name(table: Table) -> str:
    schema, name = re.escape(table.schema), re.escape(table.name)
    return rf"(?:\"?{schema}\"?\s*\.\s*)?\"?{name}\"?(?![\w$])"
