"""The content of a template, and what rendering makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True)
class Content:
    """A template in one language: sources, not yet rendered."""

    subject: str
    text: str
    html: str | None = None
    default: bool = False
    """Whether this is the language for readers whose own is not available."""

    def parts(self) -> dict[str, str]:
        """Return the sources by part, in the order of the email."""
        html = {"html": self.html} if self.html is not None else {}
        return {"subject": self.subject, **html, "text": self.text}


Contents: TypeAlias = Mapping[str, Content]
"""One version of a template: its content by locale."""


def contents_from_json(value: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Content]:
    """Return the result of `mailgres.template_contents`; empty if there is no such version."""
    return {locale: Content(**content) for locale, content in (value or {}).items()}


class Rendered(NamedTuple):
    """An email's subject and body."""

    subject: str
    html: str | None
    text: str
