"""Takes the email's own words out of what a provider said about it.

Providers quote what they refuse: a subject, a name. The text goes to analysts and into logs, which
must not show them; operators find it as it came in the detail. (Addresses are replaced by whoever
stores or logs the text.)
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.model import Message, Result

CONTENT = "<content>"
SHORTEST = 4
"""Characters of a text that is looked for; shorter ones are in every sentence."""

_PLAIN_WORD = re.compile(r"[a-z_]+")


def discreet(result: Result, message: Message) -> Result:
    """Return the result with a message that quotes neither subject nor payload."""
    text = result.message
    if not text:
        return result
    for private in sorted(set(_private(message)), key=len, reverse=True):
        text = text.replace(private, CONTENT)
    return result if text == result.message else replace(result, message=text)


def _private(message: Message) -> Iterator[str]:
    """The texts of an email; a plain word alone says nothing, and errors are made of such."""
    for text in (message.subject, *_texts(json.loads(message.email.payload or "null"))):
        if len(text) >= SHORTEST and not _PLAIN_WORD.fullmatch(text):
            yield text


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
