"""Files of records: CSV, JSON Lines or plain lines, also with gzip, never half-written."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import secrets
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mailgres.errors import MailgresError
from mailgres.safe_errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

STANDARD = "-"
_FORMULA = re.compile(r"'*[ \xa0]*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""The start of a cell that a spreadsheet would run as a formula."""
CSV, JSON_LINES, LINES = "csv", "jsonl", "txt"
_SUFFIXES = {".csv": CSV, ".jsonl": JSON_LINES, ".ndjson": JSON_LINES, ".txt": LINES}
_PACKED = ".gz"
_LONGEST_FIELD = 256 * 1024 * 1024
_BAD_TEXT = (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile)


class BadLine(Exception):
    """A line that is not a complete record."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(line, why)
        self.line, self.why = line, why


def kind_of(path: str, *kinds: str) -> str:
    """Return the kind of a file by its name; standard input and output have the first kind."""
    if path == STANDARD:
        return kinds[0]
    suffixes = [suffix for suffix in Path(path).suffixes[-2:] if suffix != _PACKED]
    kind = _SUFFIXES.get(suffixes[-1] if suffixes else "")
    if kind not in kinds:
        names = ", ".join(f".{one}" for one in kinds)
        raise MailgresError(
            f"The name of {path} does not show its format",
            f"End it with {names}, or one of them and .gz.",
        )
    return kind


def read(
    path: str, kind: str, *, reported: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the records of a file with their line numbers; a plain line is a record `line`.

    A line that is not a complete record is an error. With `reported` it is a record with the fault
    under this key, as long as the lines can be separated.
    """
    readers = {CSV: _read_csv, JSON_LINES: _read_json, LINES: _read_lines}
    last = 0
    try:
        with _opened(path) as text:
            for last, record in readers[kind](text):
                yield last, _record(last, record, reported)
    except BadLine as bad:
        raise broken(path, bad.line, bad.why) from None
    except _BAD_TEXT as error:
        why = "it ends in the middle" if isinstance(error, EOFError) else "it is damaged"
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else why
        raise broken(path, last + 1, why) from None
    except OSError as error:
        raise MailgresError(f"Cannot read {path}: {error.strerror}", "Name a file.") from None


def _record(line: int, record: dict[str, Any] | str, reported: str | None) -> dict[str, Any]:
    """Return the record of a line; of a bad line its fault, as a record or as an error."""
    if isinstance(record, dict):
        return record
    if reported is None:
        raise BadLine(line, record)
    return {reported: record}


def broken(path: str, line: int, why: str) -> MailgresError:
    """Return an error that names a line of a file."""
    return MailgresError(f"{path}, line {line}: {why}", "Nothing was changed. Fix the file.")


@contextmanager
def written(path: str, *, force: bool = False) -> Iterator[IO[str]]:
    """Write a file that only its owner can read; it appears when it is complete."""
    if path == STANDARD:
        yield _ToTerminal() if sys.stdout.isatty() else sys.stdout
        sys.stdout.flush()
        return
    target = Path(path)
    if target.exists() and not force:
        raise MailgresError(f"{path} exists", "Choose another name, or give --force.")
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with _private(part) as raw:
            with _text(raw, packed=target.suffix == _PACKED) as text:
                yield text
            raw.flush()
            os.fsync(raw.fileno())
        part.replace(target)
        _sync_directory(target.parent)
    except OSError as error:
        raise MailgresError(
            f"Cannot write {path}: {error.strerror}", f"{_left(target)}; nothing was deleted."
        ) from None
    finally:
        part.unlink(missing_ok=True)


class _ToTerminal(io.StringIO):
    """Standard output that replaces control characters."""

    def write(self, text: str) -> int:
        """Print the text without control characters."""
        return sys.stdout.write(printable(text, keep="\n"))


class Growing:
    """A file of records that only its owner can read, complete whenever the program ends.

    It is created with its first records and never replaces another file.
    """

    def __init__(self, path: str) -> None:
        self._path, self._started = path, False
        if path != STANDARD and Path(path).exists():
            raise MailgresError(f"{path} exists", "Choose another name, or move the file.")
        if path != STANDARD and not os.access(Path(path).parent, os.W_OK):
            raise MailgresError(f"Cannot write {path}", "Choose another place.")

    def add(self, records: Iterable[dict[str, Any]]) -> None:
        """Append records, as JSON Lines."""
        lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records)
        if not lines:
            return
        if self._path == STANDARD:
            sys.stdout.write(lines)
            sys.stdout.flush()
            return
        data = lines.encode()
        if self._path.endswith(_PACKED):
            data = gzip.compress(data, mtime=0)
        try:
            with _private(Path(self._path), again=self._started) as file:
                self._started = True
                file.write(data)
        except OSError as error:
            raise MailgresError(
                f"Cannot write {self._path}: {error.strerror}", "Choose another place."
            ) from None


def _left(target: Path) -> str:
    return f"{target} is as it was" if target.exists() else f"There is no {target}"


def writer(kind: str, columns: Sequence[str], file: IO[str]) -> Callable[[dict[str, Any]], None]:
    """Return a function that writes a record as a line; in CSV, lists and objects become JSON."""
    if kind == JSON_LINES:
        return lambda record: _put(file, json.dumps(record, ensure_ascii=False) + "\n")
    _put_row(file, list(columns))
    return lambda record: _put_row(file, [_cell(record.get(name)) for name in columns])


def _put(file: IO[str], line: str) -> None:
    file.write(line)


def _put_row(file: IO[str], cells: list[str]) -> None:
    # Before Python 3.13 csv leaves a carriage return unquoted, which would end the row.
    quoted = any("\r" in cell for cell in cells)
    csv.writer(
        file, lineterminator="\n", quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    ).writerow(cells)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return _defused(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _defused(cell: str) -> str:
    """Return a cell that no spreadsheet runs as a formula; `_armed` undoes it."""
    return f"'{cell}" if _FORMULA.match(cell) else cell


def _armed(cell: str) -> str:
    """Return a cell as it was before `_defused`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _read_csv(text: IO[str]) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield each row with its line number; a text is the fault of the row."""
    csv.field_size_limit(_LONGEST_FIELD)
    rows = csv.reader(text, strict=True)
    try:
        head = next(rows, [])
        for row in rows:
            if row and len(row) != len(head):
                yield rows.line_num, f"it has {len(row)} cells, but the header has {len(head)}"
            elif row:
                yield rows.line_num, dict(zip(head, map(_armed, row), strict=True))
    except csv.Error as error:
        raise BadLine(rows.line_num, f"it is not CSV: {error}") from None


def _read_json(text: IO[str]) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in enumerate(text, start=1):
        if line.strip():
            yield number, _object(line)


def _object(line: str) -> dict[str, Any] | str:
    """Return the object of a line, or its fault."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        return f"it is not JSON: {error.msg} at character {error.colno}"
    except (ValueError, RecursionError):
        return "it is not JSON"
    return record if isinstance(record, dict) else "it is not a JSON object"


def _read_lines(text: IO[str]) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in enumerate(text, start=1):
        if line.strip() and not line.startswith("#"):
            yield number, {"line": line.strip()}


@contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    if path == STANDARD:
        yield io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", newline="")
    elif path.endswith(_PACKED):
        with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as text:
            yield text
    else:
        with Path(path).open(encoding="utf-8-sig", newline="") as text:
            yield text


def _private(path: Path, *, again: bool = False) -> IO[bytes]:
    how = os.O_APPEND if again else os.O_CREAT | os.O_EXCL
    return os.fdopen(os.open(path, os.O_WRONLY | how, 0o600), "wb")


@contextmanager
def _text(raw: IO[bytes], *, packed: bool) -> Iterator[IO[str]]:
    """Write text into an open file, which stays open."""
    inner: Any = gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) if packed else raw
    text = io.TextIOWrapper(inner, encoding="utf-8", newline="\n", write_through=packed)
    try:
        yield text
        text.flush()
    finally:
        text.detach()
        if packed:
            inner.close()


def _sync_directory(directory: Path) -> None:
    """Sync the directory, so that the new name survives a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
