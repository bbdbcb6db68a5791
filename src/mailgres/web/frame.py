"""The HTML of an email for its frame: nothing in it can run, load, send or leave the frame.

The browser enforces that: a policy without scripts, connections or forms, in a sandbox without any
permission. Browsers may connect to a server before they find that a policy forbids it, so addresses
that a click or a frame would lead to are replaced as well. Images that came with the email are put
in their place.

The document carries its own colours: questions about the reader's preference are answered here. A
frame can also take over the scheme of the element around it, but not in every browser, and Chromium
loses a change that comes while the frame is loading.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:;"
    " form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
"""The Content-Security-Policy of the frame."""
MOST_INLINE_BYTES = 8 * 1024 * 1024
"""Bytes of inline images that are shown; the others are only attachments."""
MOST_PIXELS = 40_000_000
"""Pixels of an image that is shown: few bytes can become gigabytes in a browser."""
# Elements that can connect somewhere before a policy is asked. They get another name, because an
# attribute with a > in it hides those after it from a pattern.
_CONNECTS = re.compile(r"<(?=(?:link|base|iframe|frame|embed|object|animate|set)\b)", re.IGNORECASE)
# What such an attribute hid: this renames it in a text, too, rather than miss it in a tag.
_HREF = re.compile(r"""\bhref(?=\s*=)(?!\s{0,9}=\s{0,9}"\#")""", re.IGNORECASE)
# Both stop at the next tag, so they are linear.
_LEADS_AWAY = re.compile(
    r"(<(?:a|area|base|iframe|frame|embed|object|link|form|button|input|meta|video|audio|source)\b)"
    r"([^<>]{0,20000})",
    re.IGNORECASE,
)
_LINKED = re.compile(
    r"""\b(href|src|srcset|data|action|formaction|ping|poster|content|srcdoc)(\s{0,9}=\s{0,9})"""
    r"""("[^"]*"|'[^']*'|[^\s"'>]+)""",
    re.IGNORECASE,
)
_CID = re.compile(r"cid:([A-Za-z0-9@._%-]{1,200})")
# Where an email asks which colours its reader prefers: styles, and the sources of a picture.
_STYLED = re.compile(
    r"<style\b.*?(?:</style|\Z)|<source\b[^<>]{0,20000}", re.IGNORECASE | re.DOTALL
)
_PREFERENCE = re.compile(r"prefers-color-scheme\s{0,9}:\s{0,9}(light|dark)\b", re.IGNORECASE)
_EITHER_SCHEME = re.compile(
    r"(?<![\w-])(color-scheme\s{0,9}:\s{0,9})(?:light\s{1,9}dark|dark\s{1,9}light)\b", re.IGNORECASE
)
_DOCTYPE = re.compile(r"\s*<!doctype[^<>]{0,500}>", re.IGNORECASE)
_TRUE, _FALSE = "min-width:0", "max-width:0"
_HEAD = {
    "light": '<meta name="color-scheme" content="light">',
    "dark": '<meta name="color-scheme" content="dark"><style>:root{background:#121212}</style>',
}


def document(
    html: str,
    files: Sequence[Mapping[str, Any]],
    content_of: Callable[[int], bytes | None],
    scheme: str = "light",
) -> str:
    """Return the document of the frame in the colours of a scheme, `light` or `dark`."""
    images = _inline(html, files, content_of)
    harmless = _CONNECTS.sub("<x-", html)
    closed = _LEADS_AWAY.sub(lambda tag: tag[1] + _LINKED.sub(_nowhere, tag[2]), harmless)
    closed = _HREF.sub("data-href", closed)
    coloured = _STYLED.sub(lambda part: _answer(part[0], scheme), closed)
    return _with_head(_CID.sub(_ImagesInPlace(images), coloured), _HEAD[scheme])


def _with_head(html: str, head: str) -> str:
    """Put our elements first. A doctype stays before them: after them it would not count."""
    doctype = _DOCTYPE.match(html)
    start = doctype.end() if doctype else 0
    return html[:start] + head + html[start:]


def _answer(style: str, scheme: str) -> str:
    """Answer in a style what depends on the reader's preference."""
    chosen = _PREFERENCE.sub(lambda asked: _TRUE if asked[1].lower() == scheme else _FALSE, style)
    return _EITHER_SCHEME.sub(lambda given: given[1] + scheme, chosen)


class _ImagesInPlace:
    """Puts images in the place of their names. An image can be named often: all copies count."""

    def __init__(self, images: Mapping[str, str]) -> None:
        self._images = images
        self._left = MOST_INLINE_BYTES * 4 // 3  # base64

    def __call__(self, found: re.Match[str]) -> str:
        image = self._images.get(found[1], "data:,")
        if len(image) > self._left:
            return "data:,"
        self._left -= len(image)
        return image


def _nowhere(found: re.Match[str]) -> str:
    """Return an attribute that leads nowhere; harmless content of a meta tag stays."""
    name, given = found[1].lower(), found[3]
    if name == "content" and "url" not in given.lower():
        return found[0]
    return f'{found[1]}{found[2]}"#"' if name == "href" else f'data-{found[1]}=""'


def _inline(
    html: str, files: Sequence[Mapping[str, Any]], content_of: Callable[[int], bytes | None]
) -> dict[str, str]:
    """Return the images that the HTML asks for, as data, within the limits."""
    wanted = set(_CID.findall(html))
    left, images = MOST_INLINE_BYTES, {}
    for file in files:
        if file["content_id"] not in wanted or not file["kept"] or file["bytes"] > left:
            continue
        content = content_of(file["position"]) or b""
        kind = image_kind(content)
        if kind:
            left -= len(content)
            data = base64.b64encode(content).decode()
            images[file["content_id"]] = f"data:{kind};base64,{data}"
    return images


def image_kind(content: bytes) -> str | None:
    """Return the type of an image that is safe to show, by its first bytes."""
    found = _size(content)
    if found is None:
        return None
    kind, width, height = found
    return kind if 0 < width * height <= MOST_PIXELS else None


_PNG, _JPEG_FRAMES = b"\x89PNG\r\n\x1a\n", {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


def _size(content: bytes) -> tuple[str, int, int] | None:
    """Return type, width and height."""
    if content.startswith(_PNG):
        return "image/png", _big(content[16:20]), _big(content[20:24])
    if content[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif", _little(content[6:8]), _little(content[8:10])
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return _webp(content)
    if content.startswith(b"\xff\xd8"):
        return _jpeg(content)
    return None


def _webp(content: bytes) -> tuple[str, int, int] | None:
    mask = 0x3FFF
    match content[12:16]:
        case b"VP8X":
            return "image/webp", _little(content[24:27]) + 1, _little(content[27:30]) + 1
        case b"VP8 ":
            width, height = _little(content[26:28]) & mask, _little(content[28:30]) & mask
            return "image/webp", width, height
        case b"VP8L":
            bits = _little(content[21:25])
            return "image/webp", (bits & mask) + 1, (bits >> 14 & mask) + 1
    return None


def _jpeg(content: bytes) -> tuple[str, int, int] | None:
    """Walk the segments to the one that has the size."""
    at = 2
    while at + 9 <= len(content) and content[at] == 0xFF:  # noqa: PLR2004 - the mark of a segment
        if content[at + 1] in _JPEG_FRAMES:
            return "image/jpeg", _big(content[at + 7 : at + 9]), _big(content[at + 5 : at + 7])
        at += 2 + max(_big(content[at + 2 : at + 4]), 2)
    return None


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
