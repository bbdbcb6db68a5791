"""No pattern costs more than a text is long: measured by how the cost grows, not by how long."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mailgres
from mailgres import resources
from mailgres.providers.resend.faults import RESEND_RULES
from mailgres.providers.ses.faults import SES_RULES
from mailgres.providers.smtp.faults import SMTP_RULES

SOURCES = Path(mailgres.__file__).parent
FUNCTIONS = {
    "compile",
    "search",
    "sub",
    "match",
    "fullmatch",
    "findall",
    "split",
    "finditer",
    "subn",
}
CLASSES = [
    "a",
    "Z",
    "0",
    " ",
    "\t",
    "\n",
    "\r\n",
    ".",
    "-",
    "@",
    "a@",
    "a.",
    "<",
    ">",
    '"',
    "'",
    "\\",
]
CLASSES += [
    "{",
    "{{",
    "{%",
    "{#",
    "(",
    ";",
    ":",
    "/",
    "=",
    "&",
    "%",
    "|",
    "é",
    "\u2028",
    "--",
    "a ",
    "\\'",
    "postgres://",
]
SHORT, LONG = 2_000, 16_000
GROWTH = 24
"""Eight times the text may cost eight times as much; a quadratic pattern costs 64 times."""
NOTHING = 0.02
"""Seconds of the processor for the long text that are not worth comparing."""


class Used(NamedTuple):
    """A pattern, and the methods of it that are called."""

    pattern: re.Pattern[str]
    methods: frozenset[str]


def constants() -> dict[str, Used]:
    """Patterns that modules keep."""
    everything = "\n".join(path.read_text() for path in SOURCES.rglob("*.py"))
    found = {}
    for module in pkgutil.walk_packages(mailgres.__path__, "mailgres."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                methods = set(re.findall(rf"\b{name}\.(\w+)", everything)) & FUNCTIONS
                found[f"{module.name}.{name}"] = Used(value, frozenset(methods or {"search"}))
            elif isinstance(value, dict):
                for key, each in value.items():
                    if isinstance(each, re.Pattern) and isinstance(each.pattern, str):
                        found[f"{module.name}.{key}"] = Used(each, frozenset({"search"}))
    return found


def literals() -> dict[str, Used]:
    """Patterns written where they are used."""
    found = {}
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (method := _method(node)) and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    pattern = re.compile(first.value)
                    found[f"{path.name}:{node.lineno}"] = Used(pattern, frozenset({method}))
    return found


def _method(call: ast.Call) -> str | None:
    """The function of `re` that is called there."""
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        of_re = function.value.id == "re" and function.attr in FUNCTIONS
        return function.attr if of_re and function.attr != "compile" else None
    return None


def rules() -> dict[str, Used]:
    """Patterns by which faults are distinguished."""
    return {
        f"rule {rule.text}": Used(re.compile(rule.text, re.IGNORECASE), frozenset({"search"}))
        for rule in (*RESEND_RULES, *SES_RULES, *SMTP_RULES)
        if rule.text
    }


PATTERNS = constants() | literals() | rules()


def costs(act: Callable[[str], object], unit: str, size: int) -> float:
    """Seconds of the processor for a text of so many characters."""
    text = unit * (size // len(unit))
    start = time.thread_time()
    act(text)
    return time.thread_time() - start


def check(act: Callable[[str], object], unit: str, what: str) -> None:
    if costs(act, unit, LONG) < NOTHING:
        return
    short = min(costs(act, unit, SHORT) for _ in range(3))
    long = min(costs(act, unit, LONG) for _ in range(3))
    assert long < GROWTH * short, f"{what} on {unit[:60]!r}: {short} s, {long} s"


def acts(used: Used) -> Iterator[Callable[[str], object]]:
    """Yield what is done with a pattern; methods that find all matches are alike."""
    if used.methods & {"sub", "subn", "findall", "finditer", "split"}:
        yield lambda text: used.pattern.sub("", text)
    if "search" in used.methods:
        yield used.pattern.search
        yield lambda text: used.pattern.search(f"{text}!\x7f")
    if "match" in used.methods:
        yield used.pattern.match
    if "fullmatch" in used.methods:
        yield used.pattern.fullmatch
        yield lambda text: used.pattern.fullmatch(f"{text}!\x7f")


def test_no_pattern_of_python_is_worse_than_linear() -> None:
    assert len(PATTERNS) > 60
    for name, used in PATTERNS.items():
        for unit in CLASSES:
            for act in acts(used):
                check(act, unit, name)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_pattern_of_python_is_worse_than_linear_on_what_nearly_matches(
    data: st.DataObject,
) -> None:
    """A piece of what a pattern matches, again and again."""
    name = data.draw(st.sampled_from(sorted(PATTERNS)))
    pattern = PATTERNS[name].pattern
    if "*+" in pattern.pattern or "++" in pattern.pattern or "(?>" in pattern.pattern:
        pieces = st.text(
            st.sampled_from(sorted(set(pattern.pattern) | set(CLASSES[0]))), max_size=8
        )
    else:
        pieces = st.from_regex(pattern)
    piece = data.draw(pieces)[: data.draw(st.integers(1, 40))]
    if piece:
        for act in acts(PATTERNS[name]):
            check(act, piece, name)


def sql_patterns() -> Iterator[str]:
    """Every expression of SQL with a pattern: what follows ~, or is in a call of regexp_…."""
    for path in sorted(resources.sql_directory().rglob("*.sql")):
        source = re.sub(r"--[^\n]*", "", path.read_text())
        for quote in re.findall(r"~\*?\s*\(?\s*(E?'(?:[^']|'')*')", source):
            yield f"x ~ {quote}"
        for call in re.findall(r"regexp_replace\((.{0,200})", source, re.DOTALL):
            for quote in re.findall(r"E?'(?:[^']|'')*'", call)[:1]:
                yield f"regexp_replace(x, {quote}, '', 'g')"


def test_no_pattern_of_sql_is_worse_than_linear(conn: psycopg.Connection) -> None:
    expressions = sorted(set(sql_patterns()))
    assert len(expressions) > 15
    for expression in expressions:
        for unit in CLASSES[::3]:
            query = f"SELECT {expression.replace('%', '%%')} FROM repeat(%s, %s) x"
            try:
                short, long = (timed(conn, query, unit, size) for size in (SHORT, LONG))
            except psycopg.errors.InvalidRegularExpression:
                break  # a part of a pattern
            assert long < 5 * NOTHING or long < GROWTH * short, (expression, unit, short, long)


def timed(conn: psycopg.Connection, query: str, unit: str, size: int) -> float:
    least = float("inf")
    for _ in range(2):
        start = time.monotonic()
        conn.execute(query.encode(), [unit, size // len(unit)])
        least = min(least, time.monotonic() - start)
    return least
