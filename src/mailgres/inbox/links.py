"""What an email points to: its links, what it would load, and its List-Unsubscribe header.

Everything is only read. Nothing is fetched, whatever an email asks for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_LINKS = 200
"""Links that are listed."""
MOST_HTML = 2 * 1024 * 1024
"""Characters of the HTML in which links are looked for."""
_LONGEST_TEXT, _LONGEST_LINK, _LONGEST_URL = 200, 2000, 2000
# Patterns, not a parser: they are linear, whatever an email contains.
_TAG = re.compile(
    r"<(a|area|img|link|script|iframe|video|audio|source|input|body|table|td)\b([^<>]{0,8000})>",
    re.IGNORECASE,
)
_PART = re.compile(
    r"""\b(href|src|background)\s{0,9}=\s{0,9}("[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE
)
_WEB_ADDRESS = re.compile(r"https?://[^\s<>\"']{1,2000}")
_CSS_URL = re.compile(r"url\(\s*['\"]?(https?:[^)'\"\s]{1,2000})")
ONE_CLICK = "List-Unsubscribe=One-Click"


@dataclass
class Links:
    """The links of an email with their texts, and what it would load from elsewhere."""

    links: list[tuple[str, str]] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)


def find_links(html: str | None, text: str | None) -> Links:
    """Return the links of an email: those of the HTML part, else of the text part."""
    if not html:
        return Links(
            [(url, "") for url in dict.fromkeys(_WEB_ADDRESS.findall(text or ""))][:MOST_LINKS]
        )
    html = html[:MOST_HTML]
    found = Links()
    for tag in _TAG.finditer(html):
        given = {
            name.lower(): unescape(value.strip("\"'")) for name, value in _PART.findall(tag[2])
        }
        if tag[1].lower() in ("a", "area"):
            if given.get("href") and len(found.links) < MOST_LINKS:
                found.links.append((given["href"][:_LONGEST_URL], _text_of_link(html, tag.end())))
        else:
            _add_loads(found, given.values())
    _add_loads(found, _CSS_URL.findall(html))
    return found


def _text_of_link(html: str, start: int) -> str:
    """Return the text up to the end of a link, without its tags."""
    part = html[start : start + _LONGEST_LINK]
    inside = re.split("</a", part, maxsplit=1, flags=re.IGNORECASE)[0]
    return " ".join(unescape(re.sub(r"<[^<>]*>", " ", inside)).split())[:_LONGEST_TEXT]


def _add_loads(found: Links, urls: Iterable[str]) -> None:
    for url in urls:
        is_remote = url.strip().lower().startswith(("http:", "https:", "//"))
        if is_remote and url not in found.loads and len(found.loads) < MOST_LINKS:
            found.loads.append(url.strip()[:_LONGEST_URL])


def urlsplit_safe(url: str) -> str:
    """Return the scheme of a URL; nothing if it is not one."""
    try:
        return urlsplit(url.strip()).scheme
    except ValueError:
        return ""


@dataclass(frozen=True)
class Check:
    """A remark about List-Unsubscribe: whether it is right, and what it says."""

    ok: bool
    text: str


def check_unsubscribe(headers: Mapping[str, str]) -> list[Check]:
    """Check the headers that mailbox providers ask of bulk senders (RFC 2369, RFC 8058)."""
    given = {name.lower(): value for name, value in headers.items()}
    value, post = given.get("list-unsubscribe"), given.get("list-unsubscribe-post")
    if value is None:
        return [] if post is None else [_check(ok=False, text="has a List-Unsubscribe header")]
    targets = re.findall(r"<([^<>]{1,2000})>", value)
    schemes = [urlsplit_safe(target) for target in targets]
    return [
        _check(ok=bool(targets), text="has an address in angle brackets"),
        _check(ok="https" in schemes, text="has an https address"),
        _check(
            ok=not set(schemes) - {"https", "mailto"}, text="has only https and mailto addresses"
        ),
        _check(
            ok=(post or "").strip() == ONE_CLICK,
            text=f"works with one click (List-Unsubscribe-Post: {ONE_CLICK})",
        ),
    ]


def _check(*, ok: bool, text: str) -> Check:
    return Check(ok, text if ok else f"missing: {text}")
