"""Enqueue the emails of a file: all or none, or all but the bad lines.

The file is read twice, a thousand lines at a time, so that memory does not grow with it: first all
lines are checked, then they are enqueued. Without `--continue-on-error` that is one transaction;
with it each thousand is one, so that an interruption keeps the finished ones.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
import psycopg
from psycopg.types.json import Jsonb

from mailgres.cli.support import files
from mailgres.cli.support.errors import INTERRUPTED
from mailgres.cli.support.operator import explained, operator
from mailgres.cli.support.output import count, progress_bar
from mailgres.errors import MailgresError, RequestRefused
from mailgres.request import FIELDS
from mailgres.sqlstates import from_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.cli.support.operator import Operator

CHUNK = 1000
_PLACE = re.compile(r" \(element (\d+) of the array, counting from 0\)$")
CHUNK_TIMEOUT = "5min"
"""Time limit for a thousand lines."""

SHORT = {"recipient": "recipient_email", "template": "template_type", "tenant": "tenant_id"}
_JSON = {name for name, field in FIELDS.items() if field.is_json}
"""The fields whose CSV cells hold JSON."""
Line = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class Source:
    """A file of emails, and the defaults of their fields."""

    path: str
    kind: str
    defaults: dict[str, Any]
    kept: str | None = None
    """The temporary copy of standard input, because it is read twice."""


@dataclass
class Done:
    """The result of a file."""

    enqueued: int = 0
    bad: int = 0
    report: str | None = None


def run(source: Source, report: str | None, *, database_url: str | None, dry_run: bool) -> Done:
    """Check a file and enqueue it; with a report, skip its bad lines."""
    with _twice(source) as readable:
        if report is None:
            total = _check_all(readable, database_url)
            return _all_or_none(readable, total, database_url, dry_run=dry_run)
        return _what_is_good(readable, report, database_url, dry_run=dry_run)


def _check_all(source: Source, database_url: str | None) -> int:
    """Refuse a file with a bad line, naming the first; return the number of lines."""
    total, bad = 0, 0
    first: dict[str, Any] | None = None
    with operator(database_url, timeout=CHUNK_TIMEOUT) as database:
        for chunk in _chunks(source):
            faults = _faults(database, chunk)
            bad += len(faults)
            first = first or next(iter(faults), None)
            total += len(chunk)
    if first is None:
        return total
    more = f" ({count(bad - 1, 'more line is', 'more lines are')} bad)" if bad > 1 else ""
    raise MailgresError(
        f"{source.path}, line {first['line']}: {first['message']}{more}",
        f"{first['hint']} Nothing was enqueued; --continue-on-error skips bad lines.",
    )


def _all_or_none(source: Source, total: int, database_url: str | None, *, dry_run: bool) -> Done:
    done = Done()
    with (
        operator(database_url, timeout=CHUNK_TIMEOUT, dry_run=dry_run) as database,
        progress_bar(total, "Enqueued") as progress,
    ):
        try:
            for chunk in _chunks(source):
                _enqueue(database, source, chunk)
                done.enqueued += len(chunk)
                progress(len(chunk))
        except KeyboardInterrupt:
            click.echo("\nInterrupted. Nothing was enqueued.", err=True)
            sys.exit(INTERRUPTED)
    return done


def _what_is_good(source: Source, report: str, database_url: str | None, *, dry_run: bool) -> Done:
    done = Done(report=report)
    file = files.Growing(report)
    total = sum(len(chunk) for chunk in _chunks(source))
    with progress_bar(total, "Enqueued") as progress:
        try:
            for chunk in _chunks(source):
                with operator(database_url, timeout=CHUNK_TIMEOUT, dry_run=dry_run) as database:
                    faults = _enqueue_good(database, chunk)
                done.enqueued += len(chunk) - len(faults)
                done.bad += len(faults)
                file.add(faults)
                progress(len(chunk))
        except KeyboardInterrupt:
            click.echo(f"\nInterrupted. {_so_far(source, done)}", err=True)
            sys.exit(INTERRUPTED)
        except MailgresError as error:
            raise MailgresError(error.message, _so_far(source, done)) from None
    if not done.bad:
        done.report = None
    return done


def _enqueue_good(database: Operator, chunk: list[Line]) -> list[dict[str, Any]]:
    """Enqueue the good lines of a chunk; return the faults of the others."""
    faults = _faults(database, chunk)
    known = {fault["line"] for fault in faults}
    good = [line for line in chunk if line[0] not in known]
    try:
        with database.savepoint():
            _ask(database, good)
    except psycopg.Error as error:
        if not isinstance(from_database(error), RequestRefused):
            raise
        faults += [fault for line in good if (fault := _refused(database, line))]
    return sorted(faults, key=lambda fault: int(fault["line"]))


def _refused(database: Operator, line: Line) -> dict[str, Any] | None:
    """Enqueue one line: the check does not find a key that was used for another email."""
    try:
        with database.savepoint():
            _ask(database, [line])
    except psycopg.Error as error:
        ours = explained(error)
        if not isinstance(ours, RequestRefused):
            raise
        return {
            "line": line[0],
            "code": ours.sqlstate,
            "message": _PLACE.sub("", ours.message),
            "hint": ours.hint,
        }
    return None


def _enqueue(database: Operator, source: Source, chunk: list[Line]) -> None:
    try:
        _ask(database, chunk)
    except psycopg.Error as error:
        ours = explained(error)
        if isinstance(ours, RequestRefused):
            raise MailgresError(
                f"{source.path}, {_located(ours.message, chunk)}",
                f"{ours.hint} Nothing was enqueued.",
            ) from None
        raise


def _located(message: str, chunk: list[Line]) -> str:
    """Replace the position in the array by the line of the file."""
    if found := _PLACE.search(message):
        return f"line {chunk[int(found[1])][0]}: {message[: found.start()]}"
    return f"lines {chunk[0][0]} to {chunk[-1][0]}: {message}"


def _ask(database: Operator, chunk: list[Line]) -> None:
    database.ask("enqueue_emails", emails=Jsonb([email for _, email in chunk]))


def _faults(database: Operator, chunk: list[Line]) -> list[dict[str, Any]]:
    """Return the faults of a chunk's lines."""
    found = [
        {"line": line, "code": "MG015", "message": email.pop("?"), "hint": "Fix the line."}
        for line, email in chunk
        if "?" in email
    ]
    bad = {fault["line"] for fault in found}
    asked = [line for line in chunk if line[0] not in bad]
    reported = database.ask("check_emails", emails=Jsonb([email for _, email in asked]))
    found += [{"line": asked[one.pop("place")][0], **one} for one in reported]
    return sorted(found, key=lambda fault: int(fault["line"]))


def _chunks(source: Source) -> Iterator[list[Line]]:
    read = files.read(source.kept or source.path, source.kind, reported="?")
    lines = (_line(source, *line) for line in read)
    while chunk := list(islice(lines, CHUNK)):
        yield chunk


def _line(source: Source, number: int, record: dict[str, Any]) -> Line:
    """Return an email for enqueue_emails; a fault of the line is under the key `?`."""
    if isinstance(record.get("?"), str):
        return number, record
    record = {SHORT.get(name, name): value for name, value in record.items()}
    email = _of_csv(record) if source.kind == files.CSV else _of_json(record)
    email = {**source.defaults, **email}
    if isinstance(email.get("payload"), dict) and isinstance(source.defaults.get("payload"), dict):
        email["payload"] = {**source.defaults["payload"], **email["payload"]}
    if prefix := source.defaults.get("idempotency_key"):
        own = "idempotency_key" in record and record["idempotency_key"]
        email["idempotency_key"] = own or f"{prefix}:{number}"
    return number, email


def _of_json(record: dict[str, Any]) -> dict[str, Any]:
    if unknown := next((name for name in record if name not in FIELDS), None):
        return {"?": f"there is no key {unknown!r}"}
    return record


def _of_csv(record: dict[str, Any]) -> dict[str, Any]:
    """Return an email: columns are fields or variables of the payload; empty cells are ignored."""
    given = {name: value for name, value in record.items() if value != ""}
    email = {name: value for name, value in given.items() if name in FIELDS}
    for name in _JSON & email.keys():
        try:
            email[name] = json.loads(email[name])
        except (ValueError, RecursionError) as error:
            return {"?": f"{name} is not JSON: {error}"}
    variables = {name: value for name, value in record.items() if name not in FIELDS}
    if variables and isinstance(email.get("payload", {}), dict):
        email["payload"] = {**variables, **email.get("payload", {})}
    return email


def _so_far(source: Source, done: Done) -> str:
    safe = (
        "running it again continues"
        if "idempotency_key" in source.defaults
        else ("running it again would enqueue them twice; --idempotency-key prevents that")
    )
    bad = f" {done.report} lists {count(done.bad, 'bad line')} so far." if done.bad else ""
    return f"{count(done.enqueued, 'email was', 'emails were')} enqueued before that; {safe}.{bad}"


@contextmanager
def _twice(source: Source) -> Iterator[Source]:
    """Copy standard input to a file, so that it can be read twice."""
    if source.path != files.STANDARD:
        yield source
        return
    with tempfile.NamedTemporaryFile(prefix="mailgres-") as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        yield replace(source, kept=kept.name)
