"""Write a mapping as `adopt.toml` and read it back.

Every guess and every question has a comment with its reason. Reading refuses what is not understood
by its name, and a column of the table that the file leaves out.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from mailgres.adopt.mapping import (
    ASK,
    LISTS,
    NO_PLACE,
    Log,
    Mapping,
    Only,
    Queue,
    Source,
    Templates,
)
from mailgres.adopt.statuses import normal
from mailgres.adopt.vocabulary import FIELDS, MEANINGS
from mailgres.errors import MailgresError
from mailgres.values.kinds import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mailgres.adopt.tables import Proposal

FORMAT: Final = 1
HEAD: Final = """\
# How mailgres reads this queue. Written by `mailgres adopt --inspect`; edit it, then run
# `mailgres adopt --dry-run`. "?" is a question that you have to answer. "guess" says why a value
# was chosen; check each. A column with "" is not imported and stays in the old table.
"""
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_SCALARS: Final = (
    *("timezone", "null_status", "attempts_limit", "without_next_retry", "recipient_sql"),
    *("dead_letters", "expires_after_minutes"),
)
_NEEDED_BY: Final = {"without_next_retry": "next_retry_at"}
_KEYS: Final = ("table", "lists", *_SCALARS, "columns", "json", "statuses", "priorities")
_TABLES: Final = ("only", "templates", "log")


class InvalidMapping(MailgresError):
    """The mapping is not valid."""

    default_hint = "`mailgres adopt --inspect` writes a valid one; compare with it."


def write(proposals: Sequence[Proposal]) -> str:
    """Return the file for these mappings."""
    lines = [HEAD, f"format = {FORMAT}"]
    for each in proposals:
        lines += ["", "[[queue]]", *_queue(each.queue, each.remarks)]
    return "\n".join(lines) + "\n"


def _queue(queue: Queue, remarks: dict[str, str]) -> Iterator[str]:
    yield _line("table", queue.table)
    if queue.lists:
        yield _line("lists", list(queue.lists), "fields that hold several addresses")
    yield from _scalars(queue, remarks)
    if queue.only is not None:
        source = [queue.only.source.column, *queue.only.source.path]
        about = {"source": source, "values": list(queue.only.values)}
        yield _line("only", about, remarks.get("only"))
    yield from _columns(queue, remarks)
    if queue.statuses:
        yield from _section("statuses", queue.statuses, remarks)
    if queue.priorities:
        yield from _section("priorities", queue.priorities, remarks)
    for name, part in (("templates", queue.templates), ("log", queue.log)):
        if part is not None:
            known = {each.name: getattr(part, each.name) for each in fields(part)}
            yield from _section(name, {k: v for k, v in known.items() if v not in (None, ())}, {})


def _scalars(queue: Queue, remarks: dict[str, str]) -> Iterator[str]:
    for name in _SCALARS:
        value, needed = getattr(queue, name), _NEEDED_BY.get(name)
        if value is not None and (needed is None or queue.source(needed)):
            yield _line(name, value, remarks.get(name))


def _columns(queue: Queue, remarks: dict[str, str]) -> Iterator[str]:
    plain = {each: to for each, to in queue.columns.items() if not each.path}
    yield from ("", "[queue.columns]")
    for source, to in plain.items():
        yield _line(source.column, to, remarks.get(f"columns.{source}"))
    inner = sorted(each for each in queue.columns if each.path)
    above: tuple[str, ...] | None = None
    for source in sorted(inner, key=lambda each: (each.column, each.path[:-1], each.path)):
        table = (source.column, *source.path[:-1])
        if table != above:
            yield from ("", f"[queue.json.{'.'.join(_key(part) for part in table)}]")
            above = table
        yield _line(source.path[-1], queue.columns[source], remarks.get(f"columns.{source}"))


def _section(name: str, values: dict[str, Any], remarks: dict[str, str]) -> Iterator[str]:
    yield from ("", f"[queue.{name}]" + (f"  # {remarks[name]}" if name in remarks else ""))
    for key, value in values.items():
        yield _line(key, value, remarks.get(f"{name}.{key}"))


def _line(key: str, value: object, remark: str | None = None) -> str:
    text = f"{_key(key)} = {_value(value)}"
    return f"{text}  # {_comment(remark)}" if remark else text


def _comment(text: str) -> str:
    return re.sub(r"[^ -~\u00a0-\uffff]+", " ", text)


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _value(text)


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    if isinstance(value, int):
        return str(value)
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda c: f"\\u{ord(c[0]):04x}", escaped) + '"'


def read(text: str, name: str = "adopt.toml") -> Mapping:
    """Read a mapping; what is not understood is refused by its name."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidMapping(f"{name} is not TOML: {error}") from None
    if given.get("format") != FORMAT:
        raise InvalidMapping(f"{name} has no line `format = {FORMAT}`")
    _known(given, ("format", "queue"), name)
    queues = given.get("queue")
    if not isinstance(queues, list) or not queues:
        raise InvalidMapping(f"{name} has no [[queue]]")
    found = Mapping(tuple(_read_queue(each, name) for each in queues))
    tables = [each.table for each in found.queues]
    for table in tables:
        if tables.count(table) > 1:
            raise InvalidMapping(f"{name} has {table} twice")
    return found


def _read_queue(given: dict[str, Any], name: str) -> Queue:
    table = given.get("table")
    if not isinstance(table, str):
        raise InvalidMapping(f"{name}: a [[queue]] has no table")
    where = f"{name}, {table}"
    _known(given, (*_KEYS, *_TABLES), where)
    lists = tuple(_strings(given.get("lists", []), f"{where}: lists"))
    for each in lists:
        _one_of(each, LISTS, f"{where}: lists")
    queue = Queue(
        table,
        _read_columns(given, where),
        statuses=_read_statuses(given.get("statuses", {}), where),
        priorities=_read_priorities(given.get("priorities", {}), where),
        lists=lists,
        **{key: _scalar(key, given[key], where) for key in _SCALARS if key in given},
        only=_read_only(given.get("only"), where),
        templates=_read_part(Templates, given.get("templates"), f"{where}: templates"),
        log=_read_log(given.get("log"), where),
    )
    _once(queue, where)
    return queue


def _read_columns(given: dict[str, Any], where: str) -> dict[Source, str]:
    found = {}
    for column, to in _table(given.get("columns", {}), f"{where}: columns").items():
        found[Source(column)] = _field(to, f"{where}: columns.{column}")
    for column, inner in _table(given.get("json", {}), f"{where}: json").items():
        for path, to in _leaves(_table(inner, f"{where}: json.{column}"), ()):
            found[Source(column, path)] = _field(to, f"{where}: json.{column}.{'.'.join(path)}")
    # A place in JSON comes before a column for the same field: it is the application's own.
    return dict(sorted(found.items(), key=lambda each: not each[0].path))


def _leaves(
    given: dict[str, Any], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in given.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _field(to: object, where: str) -> str:
    if to in (ASK, NO_PLACE):
        return str(to)
    return _one_of(to, tuple(FIELDS), where)


def _once(queue: Queue, where: str) -> None:
    """Refuse two columns for one field; JSON and a column may share one."""
    for name in FIELDS:
        several = [each for each in queue.sources(name) if not each.path]
        if len(several) > 1:
            columns = " and ".join(str(each) for each in several)
            raise InvalidMapping(f"{where}: {columns} are both {name}")


def _read_statuses(given: object, where: str) -> dict[str, str]:
    found = {}
    for status, what in _table(given, f"{where}: statuses").items():
        key = normal(status)
        found[key] = str(what) if what == ASK else _meaning(what, f"{where}: statuses.{status}")
    return found


def _meaning(given: object, where: str) -> str:
    return _one_of(given, MEANINGS, where)


def _read_priorities(given: object, where: str) -> dict[str, int]:
    found = {}
    for value, ours in _table(given, f"{where}: priorities").items():
        if not isinstance(ours, int) or isinstance(ours, bool) or not 1 <= ours <= 9:  # noqa: PLR2004
            raise InvalidMapping(f"{where}: priorities.{value} is not a number from 1 to 9")
        found[normal(value)] = ours
    return found


def _scalar(key: str, value: object, where: str) -> Any:  # noqa: ANN401 - each key has its type
    if key in ("attempts_limit", "expires_after_minutes"):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidMapping(f"{where}: {key} is not a whole number from 1")
        return value
    if not isinstance(value, str):
        raise InvalidMapping(f"{where}: {key} is not a text")
    if key in ("null_status", "without_next_retry") and value != ASK:
        return _meaning(value, f"{where}: {key}")
    return value


def _read_only(given: object, where: str) -> Only | None:
    if given is None:
        return None
    table = _table(given, f"{where}: only")
    _known(table, ("source", "values"), f"{where}: only")
    source = _strings(table.get("source"), f"{where}: only.source")
    values = _strings(table.get("values"), f"{where}: only.values")
    if not source or not values:
        raise InvalidMapping(f"{where}: only needs a source and values")
    return Only(Source(source[0], tuple(source[1:])), tuple(values))


def _read_part(kind: type[Templates], given: object, where: str) -> Templates | None:
    if given is None:
        return None
    table = _table(given, where)
    _known(table, tuple(each.name for each in fields(kind)), where)
    for each in ("table", "key", "subject"):
        if not isinstance(table.get(each), str):
            raise InvalidMapping(f"{where} has no {each}")
    return kind(**table)


def _read_log(given: object, where: str) -> Log | None:
    if given is None:
        return None
    table = _table(given, f"{where}: log")
    _known(table, tuple(each.name for each in fields(Log)), f"{where}: log")
    for each in ("table", "key", "status"):
        if not isinstance(table.get(each), str):
            raise InvalidMapping(f"{where}: log has no {each}")
    meanings = _read_statuses(table.get("meanings", {}), f"{where}: log")
    attempts = tuple(_strings(table.get("attempts", []), f"{where}: log.attempts"))
    return Log(table["table"], table["key"], table["status"], meanings, attempts)


def _known(given: dict[str, Any], known: Sequence[str], where: str) -> None:
    for key in given:
        if key not in known:
            meant = suggestion(key, known)
            hint = f"Did you mean {meant}?" if meant else f"Known are: {', '.join(known)}."
            raise InvalidMapping(f"{where}: unknown key {key!r}", hint)


def _one_of(given: object, known: Sequence[str], where: str) -> str:
    if given not in known:
        meant = suggestion(str(given), known)
        hint = f"Did you mean {meant}?" if meant else f"Give one of: {', '.join(known)}."
        raise InvalidMapping(f"{where} is {given!r}, which is not known", hint)
    return str(given)


def _table(given: object, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidMapping(f"{where} is not a table")
    return given


def _strings(given: object, where: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise InvalidMapping(f"{where} is not a list of texts")
    return given
