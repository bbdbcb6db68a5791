"""Derive a text part from an HTML part, once, when a template is pushed.

It works on the template's source, so the template's tags must survive: they are taken out, the HTML
around them is parsed, and they are put back.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

from mailgres.templates.variables import TAG

_SKIPPED = frozenset({"head", "style", "script", "title", "template", "svg", "select"})
_VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr".split()  # noqa: SIM905
)
_PARAGRAPHS = frozenset(
    "p h1 h2 h3 h4 h5 h6 ul ol table blockquote pre".split()  # noqa: SIM905
)
_LINES = frozenset(
    "div section article header footer main nav address tr li dt dd figure form".split()  # noqa: SIM905
)
_HIDDEN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_OPEN, _CLOSE = "\ue000", "\ue001"
_HELD = re.compile(rf"{_OPEN}\d+{_CLOSE}")
_BRACES = re.compile(r"\{(?=[{%#])")


def text_from_html(html: str) -> str:
    """Return the text part for an HTML part. Links become `text (address)`."""
    held: dict[str, str] = {}

    def hold(tag: re.Match[str]) -> str:
        # The same tag gets the same mark, so that a link that shows its own address is recognised.
        return held.setdefault(tag[0], f"{_OPEN}{len(held)}{_CLOSE}")

    reader = _Reader()
    reader.feed(TAG.sub(hold, html.replace(_OPEN, "").replace(_CLOSE, "")))
    reader.close()
    text = _BRACES.sub("{{ '{' }}", reader.text())
    tags = {mark: tag for tag, mark in held.items()}
    return _HELD.sub(lambda mark: tags[mark[0]], text)


class _Reader(HTMLParser):
    """Collects the text that a person would read."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._links: list[tuple[str, int]] = []
        self._skipping: list[str] = []

    def text(self) -> str:
        """Return the collected text, with its white space normalized."""
        lines = [" ".join(line.split()) for line in "".join(self._pieces).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Start a line, a paragraph, a link, or an invisible element."""
        given = {name: value or "" for name, value in attrs}
        if self._skipping or tag in _SKIPPED or _HIDDEN.search(given.get("style", "")):
            if tag not in _VOID:
                self._skipping.append(tag)
        elif tag == "a":
            self._links.append((given.get("href", ""), len(self._pieces)))
        else:
            self._pieces.append(_before(tag, given))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Treat `<br/>` as `<br>`."""
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """End the element."""
        if self._skipping:
            if tag in self._skipping:
                while self._skipping.pop() != tag:
                    pass
        elif tag == "a" and self._links:
            href, start = self._links.pop()
            shown = " ".join("".join(self._pieces[start:]).split())
            address = href.removeprefix("mailto:").strip()
            if address and not address.startswith("#") and address not in shown:
                self._pieces.append(f" ({address})")
        elif tag in _PARAGRAPHS:
            self._pieces.append("\n\n")
        elif tag in _LINES:
            self._pieces.append("\n")

    def handle_data(self, data: str) -> None:
        """Take text; line breaks mean nothing in HTML."""
        if not self._skipping:
            self._pieces.append(re.sub(r"\s+", " ", data))


def _before(tag: str, given: dict[str, str]) -> str:
    if tag == "img":
        return given.get("alt", "")
    if tag == "hr":
        return "\n\n---\n\n"
    if tag == "li":
        return "\n- "
    if tag in {"td", "th"}:
        return " "
    if tag in _PARAGRAPHS:
        return "\n\n"
    return "\n" if tag in _LINES or tag == "br" else ""
