"""Takes the email's own words out of what a provider said about it.

Providers quote what they refuse: a subject, a name, a mailbox. The text goes to analysts and into
logs, which must not show them; operators find it as it came in the detail. The code stays whole.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from email.utils import getaddresses
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mailgres.trace import ADDRESS, where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mailgres.model import Message, Result

log = logging.getLogger(__name__)

CONTENT = "<content>"
UNTOLD = "the provider's words cannot be told apart from the email's: see the detail"
SHORTEST = 3
"""Characters of a text that is looked for; shorter ones are in every sentence."""
MOST_FOUND = 500
"""Texts of the payload that are looked for in one message."""
# Anywhere in a word, as what stands before it may have been replaced. The text was cut.
_ADDRESS = r"""[^\s<>"'(),;:]+@[^\s<>"'(),;:]+"""
SHORTEST_NUMBER = 6
"""Digits of a number that is looked for; shorter ones are in every code."""
_WORDS = """
    account address and any are bad but can content daily domain email error exceeded failed false
    for from has host invalid key limit mail mailbox message missing monthly name none not null
    quota rate recipient refused rejected request sender server service subject template test text
    the this time too true unavailable unknown user verified was with you your
"""
ORDINARY = frozenset(_WORDS.split())
"""Words that errors are made of and that say nothing of anybody."""


def discreet(result: Result, message: Message) -> Result:
    """Return the result with a message that quotes neither recipients nor subject nor payload.

    It never raises: the call was made, and the others that were in it have outcomes to be written.
    Texts are cut first: nothing below has to read more than that.
    """
    result = result.cut()
    if result.refused_copies:
        copies = (
            replace(one, message=_safe(one.message, one.code, message))
            for one in result.refused_copies
        )
        result = replace(result, refused_copies=tuple(copies))
    if not result.message:
        return result
    text = _safe(result.message, result.code, message)
    return result if text == result.message else replace(result, message=text)


def _safe(text: str, code: str | None, message: Message) -> str:
    try:
        return _without(text, code, message)
    except Exception as error:  # noqa: BLE001 - such as a payload too deep for Python to read
        log.warning("not told: %s", where(error), extra={"action": "send"})
        return UNTOLD


def _without(text: str, code: str | None, message: Message) -> str:
    """The text without what is the email's own."""
    found = _found(text, _content(message))
    if len(found) > MOST_FOUND:
        raise ValueError("the payload has nearly all of the text")
    people = _found(text, _people(message))
    parts = {
        "code": _any_of([code] if code else []),
        "phrase": _any_of(text for text in found if re.search(r"\s|@", text)),
        "address": _ADDRESS,
        "person": _any_of(people),
        "word": _any_of(found),
    }
    pattern = "|".join(f"(?P<{name}>{part})" for name, part in parts.items() if part)
    return re.sub(pattern, _instead, text, flags=re.IGNORECASE)


def _instead(match: re.Match[str]) -> str:
    if match.lastgroup == "code":
        return match[0]
    return ADDRESS if match.lastgroup in {"address", "person"} else CONTENT


def _any_of(texts: Iterable[str]) -> str:
    """A pattern of whole words; the longest first, or a part of it would be taken."""
    some = "|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True))
    return rf"(?<!\w)(?:{some})(?!\w)" if some else ""


def _found(text: str, private: Iterator[str]) -> set[str]:
    """Those that may be in the text: few, of however many the payload has."""
    lowered = text.lower()
    return {each for each in private if each.lower() in lowered and _tells(each)}


def _tells(text: str) -> bool:
    """Whether a text says anything about somebody."""
    if not re.search(r"[^\W\d_]", text):
        return sum(map(str.isdigit, text)) >= SHORTEST_NUMBER
    return len(text) >= SHORTEST and text.lower() not in ORDINARY


def _people(message: Message) -> Iterator[str]:
    """Mailboxes and names of all who are written to, and of who is answered to."""
    email = message.email
    given = [email.recipient_email, message.reply_to, *email.others]
    for name, address in getaddresses([each for each in given if each]):
        local = address.rpartition("@")[0]
        # also as a URL has them
        yield from (name, address, local, quote(address, safe=""), quote(local, safe=""))


def _content(message: Message) -> Iterator[str]:
    yield message.subject.strip()
    yield from _texts(json.loads(message.email.payload or "null", parse_int=str, parse_float=str))


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - whatever JSON holds
    """All texts, however deep: the payload is somebody's, and not checked unless it is rendered."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value.strip()
        elif isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
