"""Kinds of values: each reads a value from any source and writes it as a person would.

`parse` takes a value from a flag, a variable, TOML or Python, and its own results as well; it reads
whatever `show` writes.
"""

from __future__ import annotations

import difflib
import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

MASK = "********"
_LONGEST_ECHO = 12
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) ?(ms|s|m|h|d)?", re.ASCII)
_RATE = re.compile(r"(\d{1,9}) ?/ ?(s|m|h|d)", re.ASCII)
_ACCOUNT = re.compile(r"(?=.{3,63}\Z)[a-z]+-[a-z0-9_-]*[a-z0-9]", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,12}", re.ASCII)


class BadValue(ValueError):
    """A value is refused; the text follows the setting's name and its source."""


@dataclass(frozen=True, slots=True)
class Kind(ABC, Generic[T]):
    """The kind of a setting's values."""

    @property
    @abstractmethod
    def allowed(self) -> str:
        """What may be given, in words that follow "Give"."""

    @property
    @abstractmethod
    def metavar(self) -> str:
        """The placeholder for the value in a command's help."""

    @abstractmethod
    def parse(self, given: object) -> T:
        """Return the value, or raise BadValue."""

    def show(self, value: T) -> str:
        """Return the value as a person would write it."""
        return str(value)

    def mask(self, value: T) -> str:  # noqa: ARG002 - some kinds have parts that may be seen
        """Return the part of a secret that may be shown."""
        return MASK


def echo(given: object) -> str:
    """Return a refused value for a message.

    Only a short value is shown: a long one may be a key or a URL in the wrong variable.
    """
    text = repr(given)
    return text if len(text) <= _LONGEST_ECHO else "the value"


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was most likely meant."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


@dataclass(frozen=True, slots=True)
class Number(Kind[int]):
    """A whole number between two bounds."""

    low: int
    high: int
    metavar = "N"

    @property
    def allowed(self) -> str:
        """The bounds."""
        return f"a whole number from {self.low} to {self.high}"

    def parse(self, given: object) -> int:
        """Parse an integer or its digits."""
        if isinstance(given, str) and _NUMBER.fullmatch(given.strip()):
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool):
            raise BadValue(f"{echo(given)} is not a whole number")
        if not self.low <= given <= self.high:
            raise BadValue(f"{given} is too {'small' if given < self.low else 'large'}")
        return given


@dataclass(frozen=True, slots=True)
class Duration(Kind[timedelta]):
    """A length of time between two bounds, which are written like values."""

    low: str
    high: str
    metavar = "DURATION"

    @property
    def allowed(self) -> str:
        """The bounds and the accepted forms."""
        return f'{self.low} to {self.high}, such as "500ms", "30s", "1.5h" or a number of seconds'

    def parse(self, given: object) -> timedelta:
        """Parse a number with a unit, or seconds."""
        seconds = _seconds(given)
        if seconds is None:
            raise BadValue(f"{echo(given)} is not a duration")
        low, high = _seconds(self.low) or 0, _seconds(self.high) or math.inf
        if not low <= seconds <= high:
            raise BadValue(f"{echo(given)} is too {'short' if seconds < low else 'long'}")
        return timedelta(seconds=seconds)

    def show(self, value: timedelta) -> str:
        """Write it in the largest unit that needs no fraction."""
        seconds = value.total_seconds()
        if seconds and seconds < 1:
            return f"{_decimal(seconds * 1000)}ms"
        for unit in ("d", "h", "m"):
            if seconds and not seconds % _UNITS[unit]:
                return f"{_decimal(seconds / _UNITS[unit])}{unit}"
        return f"{_decimal(seconds)}s"


def _seconds(given: object) -> float | None:
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, str) and (match := _DURATION.fullmatch(given.strip())):
        return float(match[1]) * _UNITS[match[2] or "s"]
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    # TOML has nan and inf; an integer may be too large for a float.
    return float(given) if abs(given) < math.inf and abs(given) < 10**12 else None


def _decimal(number: float) -> str:
    text = f"{number:.6f}"
    return text.rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Rate:
    """A number in a unit of time."""

    count: int
    per: timedelta

    @property
    def per_second(self) -> float:
        """The rate per second."""
        return self.count / self.per.total_seconds()


@dataclass(frozen=True, slots=True)
class PerTime(Kind[Rate]):
    """A rate, such as 100 a minute."""

    metavar = "RATE"
    allowed = 'a number per s, m, h or d, such as "2/s" or "100/m"'

    def parse(self, given: object) -> Rate:
        """Parse `number/unit`."""
        if isinstance(given, Rate):
            given = self.show(given)
        match = _RATE.fullmatch(given.strip()) if isinstance(given, str) else None
        if not match or not int(match[1]):
            raise BadValue(f"{echo(given)} is not a rate")
        return Rate(int(match[1]), timedelta(seconds=_UNITS[match[2]]))

    def show(self, value: Rate) -> str:
        """Write `number/unit`."""
        units = {timedelta(seconds=length): unit for unit, length in _UNITS.items()}
        return f"{value.count}/{units.get(value.per, value.per)}"


@dataclass(frozen=True, slots=True)
class Or(Kind[T | None]):
    """Another kind, or a word that means none, so that a profile's choice can be undone."""

    word: str
    kind: Kind[T]

    @property
    def allowed(self) -> str:
        """What the other kind allows, and the word."""
        return f'{self.kind.allowed}, or "{self.word}"'

    @property
    def metavar(self) -> str:
        """The other kind's, and the word."""
        return f"{self.kind.metavar}|{self.word}"

    def parse(self, given: object) -> T | None:
        """Parse the word, or pass the value to the other kind."""
        if given is None or (isinstance(given, str) and given.strip().lower() == self.word):
            return None
        return self.kind.parse(given)

    def show(self, value: T | None) -> str:
        """Write the word for None."""
        return self.word if value is None else self.kind.show(value)


@dataclass(frozen=True, slots=True)
class Choice(Kind[T]):
    """One of a few words, in upper or lower case."""

    words: tuple[T, ...]

    @property
    def allowed(self) -> str:
        """The words."""
        return " or ".join(", ".join(f'"{word}"' for word in self.words).rsplit(", ", 1))

    @property
    def metavar(self) -> str:
        """The words."""
        return "|".join(map(str, self.words))

    def parse(self, given: object) -> T:
        """Return the matching word."""
        for word in self.words:
            if isinstance(given, str) and given.strip().lower() == word:
                return word
        raise BadValue(f"{echo(given)} is not one of the choices{_meant(given, self.words)}")


def _meant(given: object, words: Iterable[object]) -> str:
    meant = suggestion(str(given).lower(), map(str, words))
    return f" (did you mean {meant}?)" if meant else ""


@dataclass(frozen=True, slots=True)
class AccountNames(Kind[tuple[str, ...]]):
    """Names of accounts in order of preference: a kind, or a kind, a dash and more."""

    kinds: tuple[str, ...]
    metavar = "NAME,…"

    @property
    def allowed(self) -> str:
        """The kinds."""
        return (
            f"one or more of {', '.join(self.kinds)}, or accounts of theirs such as"
            f" {self.kinds[-1]}-acme, in a list or with commas"
        )

    def parse(self, given: object) -> tuple[str, ...]:
        """Parse a list, or names separated by commas."""
        parts = given.split(",") if isinstance(given, str) else given
        if not isinstance(parts, list | tuple) or not all(isinstance(p, str) for p in parts):
            raise BadValue(f"{echo(given)} is not a list of names")
        names = tuple(part.strip().lower() for part in parts)
        for name in names:
            self.check(name)
        if not names or len(set(names)) < len(names):
            raise BadValue("a name is given twice" if names else "the list is empty")
        if len({name.replace("_", "-") for name in names}) < len(names):
            raise BadValue("two names differ only in - and _, and would share their variables")
        return names

    def check(self, name: str) -> None:
        """Refuse a name that is not an account's."""
        kind = name.partition("-")[0]
        if kind not in self.kinds:
            raise BadValue(f"{echo(name)} is unknown{_meant(kind, self.kinds)}")
        if name != kind and not _ACCOUNT.fullmatch(name):
            raise BadValue(
                f"{echo(name)} is not the name of an account: letters, digits, - and _, at most 63"
            )

    def show(self, value: tuple[str, ...]) -> str:
        """Write the names, separated by commas."""
        return ",".join(value)


@dataclass(frozen=True, slots=True)
class Text(Kind[str]):
    """One line of a certain form. No message repeats it: it may be a secret."""

    allowed: str = "one line of text"
    pattern: str = r".+"
    metavar: str = "TEXT"
    longest: int = 1000

    def parse(self, given: object) -> str:
        """Parse a text without surrounding blanks."""
        if not isinstance(given, str):
            raise BadValue("the value is not a string")
        text = given.strip()
        if not text:
            raise BadValue("the value is empty")
        if len(text) > self.longest or not text.isprintable():
            raise BadValue("the value is too long or has line breaks or control characters")
        if not re.fullmatch(self.pattern, text):
            raise BadValue("the value has the wrong form")
        return text
