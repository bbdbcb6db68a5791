"""What a log may say about an error.

The text of an exception, and the lines that a traceback shows, may quote an address or the content
of an email, and a log must not. Its type and the places it passed through are enough to find it.
Texts that others wrote for people (a provider's answer, the database's message) are logged without
addresses.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_FRAMES = 12
"""Places shown of one error, the innermost ones."""
MOST_CAUSES = 5
LONGEST_TEXT = 2000
"""Characters of a text that are kept, as in `mailgres.redact_addresses`."""
ADDRESS = "<address>"

ANY_ADDRESS = re.compile(
    r"""(?:"[^"]{0,254}"|[^\s<>"'(),;:][^\s<>"(),;:]{0,320})"""
    r"""(?:@|\uff20|\ufe6b|%(?:25)?40|&#0{0,4}64;|&#x0{0,4}40;|&commat;|\\u0040)[^\s<>"'(),;:]+""",
    re.IGNORECASE,
)
"""Also with a quoted local part, an apostrophe in it, and the @ as in URLs, HTML or JSON."""


def printable(text: str, keep: str = "") -> str:
    """Replace characters that would control a terminal, except for those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in keep else "\N{REPLACEMENT CHARACTER}" for one in text
    )


def redact_addresses(text: str) -> str:
    """Return the text on one line and without addresses, as SQL's function of this name does."""
    return ANY_ADDRESS.sub(ADDRESS, " ".join(text[:LONGEST_TEXT].split()))


def reason(error: BaseException) -> str:
    """Return what the database or the system says went wrong.

    Only the first line: the details after it may quote a row.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return redact_addresses(lines[0])


def where(error: BaseException) -> str:
    """Return the error's type, the places it passed through, and the same of its causes."""
    return ", after ".join(_describe(each) for each in _chain(error))


def _describe(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-MOST_FRAMES:]
    places = [f"{_short(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames]
    return f"{type(error).__name__} at {' > '.join(places) or 'no place'}"


def _short(filename: str) -> str:
    """Return the file and its directory: enough to find it, without a home directory's path."""
    return "/".join(Path(filename).parts[-2:])


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, as Python shows them."""
    following: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if following is None:
            return
        yield following
        hidden = following.__suppress_context__
        following = following.__cause__ or (None if hidden else following.__context__)
