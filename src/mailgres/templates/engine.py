"""minijinja, configured for email: strict, fuel-limited, HTML escaped, no access to Python.

A template is compiled into two environments. The fast one renders almost every email. The careful
one pays for calls into Python and is used where they are needed: a null counts as not defined and
prints as nothing, long values are counted as they are written, and errors come with details. Where
neither is certain to stay within the memory limit (`bounds.py`), a separate process renders it.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

from minijinja import Environment, TemplateError

from mailgres.templates.bounds import FUEL, LIMIT, Bounds, bounds_of
from mailgres.templates.fault import Fault
from mailgres.templates.isolated import render_isolated
from mailgres.templates.payload import context_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mailgres.templates.payload import Context

MAX_SUBJECT = 998
MAX_BYTES = {"subject": 1024 * 1024, "html": 2 * 1024 * 1024, "text": 1024 * 1024}
"""How long a rendered part may be."""
_SURELY_SMALL = min(MAX_BYTES.values()) // 4
_COUNTED = 10 * max(MAX_BYTES.values())  # counted values, escaped

# The name decides about escaping: parts whose name ends in .html are escaped.
_NAMES = {"subject": "subject.txt", "html": "body.html", "text": "text.txt"}
_PARTS = {name: part for part, name in _NAMES.items()}

# minijinja takes a template's variables out of a dict and falls back to its attributes.
_METHODS = frozenset(name for name in dir(dict) if not name.startswith("_"))
_ASKS_FOR_ITEMS = re.compile(r"""\.\s*items\b|\[\s*["']items["']""")


class _Counter(threading.local):
    """How much the part that this thread renders may still write."""

    left = 0
    size = 0


class _TooLarge(Exception):
    """A part became longer than allowed."""


_counter = _Counter()


def _finalize(value: object) -> object:
    """Print null as nothing, and stop before an output fills the memory."""
    if value is None:
        return ""
    if isinstance(value, str):
        _counter.left -= len(value)
    elif isinstance(value, list | dict):
        _counter.left -= _counter.size
    if _counter.left < 0:
        raise _TooLarge
    return NotImplemented


def _default(value: object, other: object = "", also_if_false: object = False) -> object:  # noqa: FBT002 - Jinja's signature
    return other if value is None or (also_if_false and not value) else value


def environment(parts: dict[str, str], *, careful: bool = False) -> Environment:
    """Compile the parts of a template."""
    env = Environment(fuel=FUEL, undefined_behavior="strict", debug=careful)
    env.remove_global("debug")  # it prints all variables
    if careful:
        env.finalizer = _finalize
        env.add_filter("default", _default)
        env.add_filter("d", _default)
        env.add_test("defined", _is_given)
        env.add_test("undefined", lambda value: not _is_given(value))
    for part, source in parts.items():
        try:
            env.add_template(_NAMES[part], source)
        except TemplateError as error:
            raise _fault(error, part, parts) from None
    return env


def _is_given(value: object) -> bool:
    return value is not None


class Compiled:
    """The parts of a template in one language, ready to render, in any number of threads."""

    __slots__ = (
        "_asks_for_items",
        "_careful",
        "_counted_size",
        "_methods",
        "_names",
        "_parts",
        "_quick",
        "_quick_size",
        "variables",
    )

    def __init__(self, parts: Mapping[str, str]) -> None:
        self._parts = dict(parts)
        self._names = [(part, _NAMES[part]) for part in self._parts]
        self._quick = environment(self._parts)
        self._careful: Environment | None = None
        self._quick_size, self._counted_size = _sizes(bounds_of(self._parts.values()))
        self.variables = variables_of(self._quick, self._parts)
        """All names that the template takes from the payload."""
        self._methods = _METHODS & self.variables
        self._asks_for_items = any(map(_ASKS_FOR_ITEMS.search, self._parts.values()))

    def render(self, payload: Mapping[str, Any]) -> dict[str, str]:
        """Return the rendered parts."""
        context = context_of(payload)
        if context.size > self._counted_size:
            return render_isolated(self._parts, payload)
        return self.render_here(context)

    def render_here(self, context: Context) -> dict[str, str]:
        """Return the parts rendered by this process, whatever memory that takes."""
        variables, size, has_nulls, has_objects = context
        careful = has_nulls or size > self._quick_size or (has_objects and self._asks_for_items)
        if self._methods and not self._methods <= variables.keys():
            variables = {**dict.fromkeys(self._methods), **variables}
            careful = True
        render = (self._carefully() if careful else self._quick).render_template
        rendered = {}
        part = ""
        try:
            for part, name in self._names:
                if careful:
                    _counter.left, _counter.size = MAX_BYTES[part], size
                rendered[part] = render(name, **variables)
        except BaseException as error:  # noqa: BLE001 - Rust's panics are no Exception
            raise self._explain(error, part, variables) from None
        return rendered

    def _carefully(self) -> Environment:
        # Two threads may both compile it; both get the same.
        if self._careful is None:
            self._careful = environment(self._parts, careful=True)
        return self._careful

    def _explain(
        self, error: BaseException, part: str, variables: Mapping[str, Any]
    ) -> BaseException:
        """Return the fault behind an error; the fast environment knows little about it."""
        if isinstance(error, TemplateError):
            _counter.left = MAX_BYTES[part]
            try:
                self._carefully().render_template(_NAMES[part], **variables)
            except TemplateError as detailed:
                error = detailed
            except Exception:  # noqa: BLE001, S110 - the first error is good enough
                pass
            return _fault(error, part, self._parts)
        if isinstance(error, _TooLarge):
            return _too_large(part)
        if isinstance(error, AttributeError):
            return Fault(part, f"unknown method {error}")
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            return Fault(part, f"it cannot be rendered ({type(error).__name__})")
        return error


def _sizes(bounds: Bounds | None) -> tuple[int, int]:
    """Return the largest payloads that are safe to render fast, and in this process at all."""
    if bounds is None:
        return -1, -1
    quick = _largest(lambda size: bounds.output(size) <= LIMIT)
    counted = _largest(
        lambda size: bounds.own_output(size) + bounds.largest_value(size) + _COUNTED <= LIMIT
    )
    return quick, max(quick, counted)


def _largest(holds: Callable[[int], bool]) -> int:
    """Return the largest number for which `holds` is true, as it is for all below; -1 for none."""
    low, high = -1, LIMIT
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def variables_of(env: Environment, parts: dict[str, str]) -> frozenset[str]:
    """Return the names that compiled parts take from the payload."""
    used = (env.undeclared_variables_in_template(_NAMES[part]) for part in parts)
    return frozenset().union(*used) - env.globals.keys()


def check_sizes(parts: Mapping[str, str]) -> None:
    """Refuse outputs that are too long."""
    # No character has more than four bytes, so nearly all outputs need not be counted.
    if sum(map(len, parts.values())) > _SURELY_SMALL:
        for part, output in parts.items():
            if len(output.encode()) > MAX_BYTES[part]:
                raise _too_large(part)


def _too_large(part: str) -> Fault:
    return Fault(part, f"it becomes longer than {MAX_BYTES[part]} bytes")


_SAFE_DETAILS = {
    "SyntaxError",
    "UndefinedError",
    "UnknownFilter",
    "UnknownTest",
    "UnknownFunction",
    "UnknownMethod",
}
"""Kinds of errors whose details are about the source only; others may quote a value."""


def _fault(error: TemplateError, part: str, parts: dict[str, str]) -> Fault:
    part = _PARTS.get(error.name or "", part)
    return Fault(part, _what(error, parts.get(part, "")), error.line)


def _what(error: TemplateError, source: str) -> str:
    if error.kind == "OutOfFuel":
        return f"it does not come to an end within {FUEL} steps"
    if error.kind == "TemplateNotFound":
        return "it includes another template, but only its own parts are there"
    if error.kind in _SAFE_DETAILS and error.detail:
        return error.detail
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", error.kind).lower()
    return f"{words}{_quoted(source, error.range)}"


def _quoted(source: str, place: tuple[int, int] | None) -> str:
    """Return the piece of the source that is wrong."""
    if place is None:
        return ""
    piece = source.encode()[slice(*place)].decode(errors="ignore")
    return f" in `{' '.join(piece.split())[:80]}`"
