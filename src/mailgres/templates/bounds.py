"""How much memory a template can need at most, read from its source.

Fuel bounds the steps of minijinja, not its memory: one step of `indent(4000000000)` asks for four
gigabytes, and an allocation that fails ends the whole process. Here a template is accepted only if
every construct in it is known to keep within a bound that can be computed. All other templates are
rendered in a process of their own (`isolated.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mailgres.templates.variables import TAG

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LIMIT = 128 * 1024 * 1024
"""Bytes that a rendering in this process may need at most."""
FUEL = 200_000
"""Steps that one part may take; a long invoice takes some ten thousand."""

_ROUNDS = FUEL // 3  # a round of a loop takes at least four steps
_PER_CHARACTER = 10  # bytes that one character of a value can become: escaped, quoted, encoded
_MOST_GROWTH = 1000
_NUMBER = 350  # digits that the result of a calculation can have

# How much each filter can grow one character, and which arguments it may have.
_NO_ARGUMENTS = {
    "tojson": 6, "urlencode": 12, "escape": 6, "e": 6, "upper": 3, "lower": 3, "title": 3,
    "capitalize": 3, "string": 1, "safe": 1, "length": 1, "count": 1, "abs": 1, "int": 1,
    "float": 1, "bool": 1, "first": 1, "last": 1, "min": 1, "max": 1, "reverse": 1, "list": 1,
    "unique": 1, "items": 1, "trim": 1, "sort": 1, "dictsort": 1,
}  # fmt: skip
_LITERALS = {"round": 1, "trim": 1, "sort": 1, "dictsort": 1}
_ANY_ARGUMENTS = {"default": 1, "d": 1}
_LONG_AS_ARGUMENTS = {"join", "replace"}
_METHODS = {"items", "keys", "values"}
_WORDS = {"if", "else", "and", "or", "not", "in", "is"}

_TOKEN = re.compile(
    r"""\s++|(?P<string>"(?:\\.|[^"\\])*+"|'(?:\\.|[^'\\])*+')|(?P<number>\d[\w.]*+)"""
    r"""|(?P<name>[A-Za-z_]\w*+)|(?P<sign>==|!=|<=|>=|//|\{\s*+\}|[-.,()\[\]:|<>=/%~+])|(?P<other>["'].*+|.)""",
    re.DOTALL,
)
_STATEMENT = re.compile(r"\s*+(\w+)\s*+(.*+)", re.DOTALL)
_FOR = re.compile(r"\w+(?:\s*+,\s*+\w+)*+\s+in\b(.*+)", re.DOTALL)
_SET = re.compile(r"\w+\s*+=(?!=)(.*+)", re.DOTALL)


class _Unknown(Exception):
    """A construct whose memory is not known to be bounded."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a template writes, by the depth of loops: its own characters, and values."""

    literals: Sequence[int]
    values: Sequence[int]
    """The sum of the growth of all values that are written."""
    growth: int
    """The most characters that an expression can make of one character."""
    texts: int
    """Characters of string literals in its expressions: the source can add them to a value."""

    def output(self, size: int) -> int:
        """Return the bytes that may be written for a payload of `size` characters."""
        value = self._value(size)
        return self.own_output(size) + sum(
            grown * value * rounds
            for grown, rounds in zip(self.values, self._rounds(size), strict=True)
        )

    def own_output(self, size: int) -> int:
        """Return the bytes of the source itself that may be written: loops repeat them."""
        return sum(
            length * rounds
            for length, rounds in zip(self.literals, self._rounds(size), strict=True)
        )

    def largest_value(self, size: int) -> int:
        """Return the bytes of the longest value that an expression can have."""
        return self.growth * self._value(size)

    def _value(self, size: int) -> int:
        return _PER_CHARACTER * (size + self.texts + _NUMBER)

    def _rounds(self, size: int) -> list[int]:
        """Return how often the text at each depth can be written: loops go over lists and texts."""
        most = self.growth * (size + self.texts + 1)
        return [min(most**depth, _ROUNDS) for depth in range(len(self.literals))]


def bounds_of(sources: Iterable[str]) -> Bounds | None:
    """Return the bounds of a template's parts together; None if something in them has none."""
    reader = _Reader()
    try:
        for source in sources:
            reader.read(source)
    except _Unknown:
        return None
    return reader.bounds()


class _Reader:
    """Reads the parts of a template, tag by tag."""

    def __init__(self) -> None:
        self._literals = [0]
        self._values = [0]
        self._depth = 0
        self._grown = 1  # the growth of variables that were set
        self._growth = 1
        self._texts = 0

    def bounds(self) -> Bounds:
        return Bounds(tuple(self._literals), tuple(self._values), self._growth, self._texts)

    def read(self, source: str) -> None:
        end = 0
        for tag in TAG.finditer(source):
            self._literals[self._depth] += 4 * (tag.start() - end)
            end = tag.end()
            code = tag[0][2:-2].strip("-+")
            if tag[0].startswith("{{") and tag[0].endswith("}}"):
                self._values[self._depth] += self._grow(code)
            elif tag[0].startswith("{%") and tag[0].endswith("%}"):
                self._statement(code)
            elif not tag[0].endswith("#}"):
                raise _Unknown
        self._literals[self._depth] += 4 * (len(source) - end)
        if self._depth:
            raise _Unknown

    def _statement(self, code: str) -> None:
        found = _STATEMENT.fullmatch(code.strip())
        if found is None:
            raise _Unknown
        match found[1], found[2]:
            case (("if" | "elif"), condition):
                self._grow(condition)
            case (("else" | "endif"), ""):
                pass
            case "for", loop:
                self._enter(loop)
            case "endfor", "" if self._depth:
                self._depth -= 1
            case "set", assignment if assigned := _SET.fullmatch(assignment):
                self._grown = self._grow(assigned[1])
            case _:
                raise _Unknown

    def _enter(self, loop: str) -> None:
        found = _FOR.fullmatch(loop)
        if found is None:
            raise _Unknown
        self._grow(found[1])
        self._depth += 1
        if self._depth == len(self._literals):
            self._literals.append(0)
            self._values.append(0)

    def _grow(self, code: str) -> int:
        tokens = _tokens(code)
        self._texts += sum(len(text) for kind, text in tokens if kind == "string")
        grown = self._grown * _growth_of(tokens)
        if grown > _MOST_GROWTH:
            raise _Unknown
        self._growth = max(self._growth, grown)
        return grown


def _tokens(code: str) -> list[tuple[str, str]]:
    return [(kind, found[kind]) for found in _TOKEN.finditer(code) if (kind := found.lastgroup)]


def _growth_of(tokens: list[tuple[str, str]]) -> int:
    """Return how many characters an expression can make of one."""
    growth, sums = 1, 1
    for at, (kind, text) in enumerate(tokens):
        before = tokens[at - 1][1] if at else ""
        match kind, text:
            case "other", _:
                raise _Unknown
            case "sign", ("~" | "+"):
                sums += 1
            case "sign", "(" if at and tokens[at - 1][0] == "name":
                _check_call(tokens, at)
            case "sign", "[" if not _ends_a_value(tokens[at - 1 : at]):
                _longest_literal(tokens[at:])  # a list
            case "name", "recursive":
                raise _Unknown
            case "name", _ if before == "|":
                growth *= _growth_of_filter(text, tokens[at + 1 :])
    return growth * sums


def _ends_a_value(before: list[tuple[str, str]]) -> bool:
    """Return whether the tokens end a value: a subscript or a call follows, not a list."""
    return any(
        text in {")", "]"} or (kind == "name" and text not in _WORDS) for kind, text in before
    )


def _check_call(tokens: list[tuple[str, str]], at: int) -> None:
    """Refuse calls other than those of filters, tests and the harmless methods of an object."""
    *_, (_, two_before), (_, before), (_, name) = [("", ""), ("", ""), *tokens[:at]]
    is_test = before == "is" or (two_before, before) == ("is", "not")
    is_method = before == "." and name in _METHODS and tokens[at + 1 : at + 2] == [("sign", ")")]
    if not (before == "|" or is_test or is_method or name in _WORDS):
        raise _Unknown


def _growth_of_filter(name: str, rest: list[tuple[str, str]]) -> int:
    """Return what a filter can make of one character; `rest` is the code after its name."""
    called = rest[:1] == [("sign", "(")]
    if name in _ANY_ARGUMENTS:
        return _ANY_ARGUMENTS[name]
    if name in _NO_ARGUMENTS and not called:
        return _NO_ARGUMENTS[name]
    if name in _LITERALS or name in _LONG_AS_ARGUMENTS:
        longest = _longest_literal(rest) if called else 0
        return _LITERALS.get(name, 1 + longest)
    raise _Unknown


def _longest_literal(rest: list[tuple[str, str]]) -> int:
    """Return the length of the longest argument, all of which have to be literals."""
    longest = 0
    for kind, text in rest[1:]:
        if text in {")", "]"} and kind == "sign":
            return longest
        if kind not in {"string", "number"} and text not in {
            ",",
            "=",
            "attribute",
            "reverse",
            "by",
        }:
            raise _Unknown
        longest = max(longest, len(text))
    raise _Unknown
