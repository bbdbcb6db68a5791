"""Compare a mapping with the database that it is for: nothing is lost, nothing is invented."""

from __future__ import annotations

import zoneinfo
from typing import TYPE_CHECKING

from mailgres.adopt.files import InvalidMapping
from mailgres.adopt.mapping import ASK, Source
from mailgres.adopt.vocabulary import TIMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mailgres.adopt.catalog import Catalog, Table
    from mailgres.adopt.mapping import Mapping, Queue


def check(mapping: Mapping, catalog: Catalog) -> None:
    """Refuse a mapping that leaves out a column, or names what is not there."""
    for queue in mapping.queues:
        table = _table(queue.table, catalog)
        _check_columns(queue, table)
        _check_zone(queue, table)
        _check_others(queue, catalog)


def _check_columns(queue: Queue, table: Table) -> None:
    names = {each.name for each in table.columns}
    named = {each.column for each in queue.columns}
    if lost := [each.name for each in table.columns if each.name not in named]:
        raise InvalidMapping(
            f"the mapping of {queue.table} leaves out {_list(lost)}",
            'Say which of our fields it is, or "" if it is not to be imported.',
        )
    if unknown := sorted(named - names):
        raise InvalidMapping(
            f"{queue.table} has no column {_list(unknown)}",
            f"It has: {', '.join(each.name for each in table.columns)}.",
        )


def _check_zone(queue: Queue, table: Table) -> None:
    local = [
        each.name
        for each in table.columns
        if each.kind == "local_time" and queue.columns[Source(each.name)] in TIMES
    ]
    if local and queue.timezone is None:
        raise InvalidMapping(
            f"{queue.table}: {_list(local)} have no time zone, and the mapping names none",
            'Add a line such as timezone = "UTC".',
        )
    if queue.timezone not in (None, ASK, *zoneinfo.available_timezones()):
        raise InvalidMapping(
            f"{queue.table}: {queue.timezone!r} is no time zone",
            "Give a name such as UTC or America/Mexico_City.",
        )


def answered(mapping: Mapping) -> None:
    """Refuse a mapping with open questions; the error lists them all."""
    if questions := mapping.questions():
        lines = "".join(f"\n  {where}: {question}" for where, question in questions)
        raise InvalidMapping(
            f"{len(questions)} questions of the mapping are open:{lines}",
            'Replace each "?" in the file by an answer.',
        )


def _check_others(queue: Queue, catalog: Catalog) -> None:
    if queue.only is not None:
        _has(queue.table, [queue.only.source.column], catalog)
    if queue.templates is not None:
        given = queue.templates
        columns = (given.key, given.subject, given.html, given.text, given.body)
        _has(given.table, [each for each in columns if each], catalog)
    if queue.log is not None:
        _has(queue.log.table, [queue.log.key, queue.log.status], catalog)
    if queue.dead_letters is not None:
        _has(queue.dead_letters, {each.column for each in queue.columns}, catalog)


def _has(name: str, columns: Iterable[str], catalog: Catalog) -> None:
    names = {each.name for each in _table(name, catalog).columns}
    if missing := sorted(set(columns) - names):
        raise InvalidMapping(f"{name} has no column {_list(missing)}")


def _table(name: str, catalog: Catalog) -> Table:
    table = catalog.table(name)
    if table is None:
        raise InvalidMapping(
            f"there is no table {name}",
            "Give schema and name as SQL writes them, and check that your role may see it.",
        )
    return table


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
