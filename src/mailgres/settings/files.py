"""Find and read `mailgres.toml`."""

from __future__ import annotations

import logging
import re
import stat
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mailgres.settings.errors import InvalidSettings, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FILE = "mailgres.toml"

logger = logging.getLogger(__name__)
_PLACE = re.compile(r"\(at (line \d+, column \d+)\)")


@dataclass(frozen=True, slots=True)
class File:
    """The content of a file, and its name in messages."""

    path: Path
    title: str
    values: Mapping[str, object]
    lines: Mapping[str, int]

    def place(self, key: str) -> str:
        """Return where a key is, with its line if that is known."""
        return f"{self.title} line {self.lines[key]}" if key in self.lines else self.title

    def holds(self, key: str) -> bool:
        """Return whether a key is present; a key in a table has the table's name before it."""
        found: object = self.values
        for part in key.split("."):
            if not isinstance(found, dict) or part not in found:
                return False
            found = found[part]
        return True

    def warn_if_open(self, secrets: Iterable[str]) -> None:
        """Warn if every user of the machine can read these keys of the file."""
        held = ", ".join(name for name in secrets if self.holds(name))
        if held and self.path.stat().st_mode & stat.S_IROTH:
            logger.warning(
                "%s holds %s and can be read by every user of this machine: chmod 600 %s",
                self.title,
                held,
                self.title,
                extra={"action": "settings_file_open"},
            )


def read_named(directory: Path, name: str, source: str) -> File:
    """Read the file that was named; `source` is where."""
    try:
        return _read(directory / name, name)
    except FileNotFoundError:
        hint = "Name a file that exists, or none."
        problem = Problem(f"config, from {source}: there is no file {name}", hint)
    raise InvalidSettings([problem])


def read_if_there(directory: Path) -> File | None:
    """Read the file of a directory, or return None."""
    try:
        return _read(directory / FILE, FILE)
    except FileNotFoundError:
        return None


def _read(path: Path, title: str) -> File:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return File(path, title, tomllib.loads(text), _lines(text))
    except FileNotFoundError:
        raise
    except OSError as error:
        problem = Problem(f"{title} cannot be read: {error.strerror}", "Check its permissions.")
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        problem = _not_toml(title, error)
    # Outside of the handlers, because the caught exception may hold the text of the file.
    raise InvalidSettings([problem])


def _not_toml(title: str, error: Exception) -> Problem:
    """Return the place only: the parser's message may quote the file, which may hold a secret."""
    place = _PLACE.search(str(error))
    at = f" {place[1]}" if place and isinstance(error, tomllib.TOMLDecodeError) else ""
    return Problem(
        f"{title}{at}: this is not TOML in UTF-8",
        'Write one setting a line, strings in quotes: concurrency = 10, lease = "60s".',
    )


def _lines(text: str) -> dict[str, int]:
    """Return the line of each key, with its table's name before it; tomllib has no lines."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([\w\s.\"'-]+?)\s*\]", line):
            parts = [part.strip(" \t\"'") for part in header[1].split(".")]
            for length in range(1, len(parts) + 1):
                lines.setdefault(".".join(parts[:length]), number)
            table = ".".join(parts) + "."
        elif match := re.match(r"""\s*["']?([\w-]+)["']?\s*[=.]""", line):
            lines.setdefault(table + match[1], number)
    return lines
