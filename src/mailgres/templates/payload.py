"""Payloads for templates: JSON values without Python's attributes.

minijinja looks up a key that a mapping lacks among the attributes of the Python object, so that
`order.values` would find a method where nothing is defined. Objects and arrays therefore go in as
types without attributes. A payload nested deeper than minijinja's stack allows would end the
process, so it is measured before.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from mailgres.templates.fault import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DEPTH = 64
"""Levels of objects and arrays in a payload."""

_SMALL, _LARGE = 1e-5, 1e17
_NUMBERS = frozenset({int, float, bool})


class Context(NamedTuple):
    """The variables of one email, and what the engine has to know about them."""

    variables: Mapping[str, Any]
    size: int
    """Upper bound of the characters of everything in it, written out."""
    has_nulls: bool
    has_objects: bool


class _Object(dict[str, Any]):
    """A JSON object. A missing key is undefined, also where dict has a method of that name."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - the signature is object's
        if name == "items":
            return None  # its presence is how minijinja knows a mapping
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise AttributeError(name)


class _Array(list[Any]):
    """A JSON array without methods."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - the signature is object's
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise AttributeError(name)


def parse_payload(text: str) -> dict[str, Any]:
    """Parse the payload's JSON; one nested too deeply is a fault, not a crash."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise Fault("payload", "it is not JSON") from None
    if not isinstance(value, dict):
        raise Fault("payload", "it is not a JSON object")
    return value


def context_of(payload: Mapping[str, Any]) -> Context:
    """Return the variables that a template may see."""
    size = 0
    has_nulls = False
    for value in payload.values():
        kind = type(value)
        if kind is str:
            size += len(value)
        elif value is None:
            has_nulls = True
        elif kind in _NUMBERS:
            size += _digits(value)
        else:
            return _nested_context(payload)
    return Context(payload, size, has_nulls, False)  # noqa: FBT003 - by position it is quicker


def _nested_context(payload: Mapping[str, Any]) -> Context:
    walk = _Walk()
    variables = {key: walk.convert(value, 1) for key, value in payload.items()}
    return Context(variables, walk.size, walk.has_nulls, walk.has_objects)


class _Walk:
    """Converts a payload in one pass."""

    def __init__(self) -> None:
        self.size = 0
        self.has_nulls = False
        self.has_objects = False

    def convert(self, value: Any, depth: int) -> Any:  # noqa: ANN401 - any JSON value
        """Return a value as a template may see it."""
        kind = type(value)
        self.size += 4  # the separator
        if kind is str:
            self.size += len(value)
            return value
        if kind in _NUMBERS:
            self.size += _digits(value)
            return value
        if value is None:
            self.has_nulls = True
            return value
        if depth > MAX_DEPTH:
            raise _too_deep()
        if kind is dict:
            self.has_objects = True
            self.size += sum(map(len, value))
            return _Object({key: self.convert(each, depth + 1) for key, each in value.items()})
        if kind is list:
            return _Array([self.convert(each, depth + 1) for each in value])
        raise Fault("payload", f"it holds a {kind.__name__}, which is not a JSON value")


def _digits(value: float) -> int:
    """Return how many characters a number needs at most."""
    is_usual = not value or _SMALL < abs(value) < _LARGE
    return 24 if is_usual else 5000  # json reads at most 4,300 digits


def _too_deep() -> Fault:
    return Fault("payload", f"it is nested more than {MAX_DEPTH} levels deep")
