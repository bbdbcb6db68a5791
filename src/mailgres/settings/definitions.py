"""How a setting is defined: everything about it in one place, the field of `Settings` itself."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    from mailgres.values.kinds import Kind

T = TypeVar("T")
D = TypeVar("D")

PREFIX = "MAILGRES_"
_DEFINITION = "mailgres definition"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a value; as text, in words that follow "from"."""

    layer: Literal["flag", "environment", "file", "profile", "default"]
    text: str

    def __str__(self) -> str:
        return self.text


DEFAULT = Origin("default", "default")


@dataclass(frozen=True, slots=True)
class Definition:
    """A setting: its purpose, its values, and its names."""

    name: str
    kind: Kind[Any]
    about: str
    default: object
    default_text: str
    also: tuple[str, ...]
    secret: bool

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables for it; the first that is set counts."""
        return (PREFIX + self.name.upper(), *self.also)

    @property
    def flag(self) -> str:
        """The command-line option."""
        return "--" + self.name.replace("_", "-")

    def show(self, value: object) -> str:
        """Return a value as it may be shown: masked if secret."""
        if value is None:
            return self.default_text
        return self.kind.mask(value) if self.secret else self.kind.show(value)


@overload
def setting(kind: Kind[T], about: str, *, factory: Callable[[], T], default_text: str) -> T: ...
@overload
def setting(
    kind: Kind[T], about: str, default: D, *, also: tuple[str, ...] = (), secret: bool = False
) -> T | D: ...
def setting(
    kind: Kind[Any],
    about: str,
    default: object = None,
    *,
    factory: Callable[[], Any] | None = None,
    default_text: str = "",
    also: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:
    """Define a field of `Settings`.

    `also` are variables of other programs that mean the same; `factory` makes a default that is
    not known in advance, and `default_text` describes it.
    """
    about_it = {
        "kind": kind,
        "about": about,
        "default": default,
        "default_text": default_text or _text(kind, default),
        "also": also,
        "secret": secret,
    }
    metadata = {_DEFINITION: about_it}
    if factory:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _text(kind: Kind[Any], default: object) -> str:
    try:
        return kind.show(kind.parse(default))
    except ValueError:
        return ""


def definitions(cls: type[Any]) -> dict[str, Definition]:
    """Return the settings that a class defines, in their order; inherited ones come last."""
    fields = [field for field in dataclasses.fields(cls) if _DEFINITION in field.metadata]
    return {
        field.name: Definition(name=field.name, **field.metadata[_DEFINITION])
        for field in sorted(fields, key=lambda field: field.name not in cls.__annotations__)
    }
