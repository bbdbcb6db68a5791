"""Render a version of a template with a payload into subject, HTML and text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mailgres.errors import TemplateFailed
from mailgres.templates.content import Rendered
from mailgres.templates.engine import MAX_SUBJECT, Compiled, check_sizes
from mailgres.templates.fault import Fault
from mailgres.templates.locales import choose_locale, default_locale
from mailgres.templates.payload import parse_payload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mailgres.templates.content import Contents

_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]+")
_MAX_CHOICES = 64
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")


class Template:
    """One version of a template. It never changes; any number of threads may render it.

    A language is compiled when it is first used.
    """

    __slots__ = ("_choices", "_compiled", "_contents", "_default", "_label")

    def __init__(self, contents: Contents, label: str = "the template") -> None:
        if not contents:
            raise TemplateFailed(f"{label} has no content", "Push the template again.")
        self._contents = contents
        self._label = label
        self._default = default_locale(contents)
        self._compiled: dict[str, Compiled] = {}
        self._choices = dict(zip(contents, contents, strict=True))

    def render(self, payload: Mapping[str, Any] | str, locale: str | None = None) -> Rendered:
        """Render in the language of `locale`, or else of `payload["locale"]`.

        The payload may still be JSON text. A failure raises TemplateFailed, whose message quotes no
        value of the payload.
        """
        chosen = locale or self._default
        try:
            if isinstance(payload, str):
                payload = parse_payload(payload)
            chosen = self._choose(locale or payload.get("locale"))
            compiled = self._compiled.get(chosen)
            if compiled is None:
                compiled = self._compiled[chosen] = Compiled(self._contents[chosen].parts())
            return finish(compiled.render(payload))
        except Fault as fault:
            raise TemplateFailed(f"{self._label} ({chosen}), {fault}") from None

    def _choose(self, wanted: object) -> str:
        if wanted is None:
            return self._default
        if not isinstance(wanted, str):
            return choose_locale(wanted, self._contents.keys(), self._default)
        chosen = self._choices.get(wanted)
        if chosen is None:
            chosen = choose_locale(wanted, self._contents.keys(), self._default)
            if len(self._choices) < _MAX_CHOICES:  # payloads may ask for anything
                self._choices[wanted] = chosen
        return chosen


def render(
    contents: Contents, payload: Mapping[str, Any] | str, locale: str | None = None
) -> Rendered:
    """Render once. A caller that renders often keeps a `Template`, or a `TemplateCache`."""
    return Template(contents).render(payload, locale)


def finish(parts: dict[str, str]) -> Rendered:
    """Check and clean rendered parts: bounded, the subject on one line."""
    check_sizes(parts)
    html = parts.get("html")
    if html is not None:
        # minijinja escapes slashes, which HTML does not need. Providers that rewrite links to count
        # clicks look for https:// in the source.
        html = html.replace("&#x2f;", "/")
    return Rendered(one_line(parts["subject"]), html, _tidy(parts["text"]))


def one_line(subject: str) -> str:
    """Return a subject without line breaks and other control characters, cut if too long."""
    if not subject.isprintable() or subject[:1] == " " or subject[-1:] == " ":
        subject = _UNPRINTABLE.sub(" ", subject).strip()
    if not subject:
        raise Fault("subject", "it is empty")
    return subject if len(subject) <= MAX_SUBJECT else f"{subject[: MAX_SUBJECT - 1]}…"


def _tidy(text: str) -> str:
    """Remove the gaps that lines with only a tag leave behind."""
    if "\n\n\n" in text or " \n" in text:
        text = _BLANK_LINES.sub("\n\n", text)
    return f"{text.strip()}\n"
