"""Remove the email's own words from what a provider said about it.

Providers quote what they refuse: a subject, a name, a mailbox. The message goes to analysts and
into logs, which must not show these; operators find the original in the detail. The code is kept.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from email.utils import getaddresses
from typing import TYPE_CHECKING, Any

from mailgres.safe_errors import ADDRESS, where
from mailgres.sender.spellings import may_be_in, names_somebody, pattern_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mailgres.model import Message, Result

log = logging.getLogger(__name__)

CONTENT = "<content>"
UNREDACTABLE = "the provider's answer may quote the email: see the detail"
MOST_FOUND = 500
"""Texts of the payload that are searched for in one message."""
# Anywhere in a word, because the text before it may have been replaced. The text was cut.
_ADDRESS = r"""[^\s<>"'(),;:]+@[^\s<>"'(),;:]+"""

OF_PEOPLE = frozenset({"address", "name", "mailbox", "person"})


def redact(result: Result, message: Message) -> Result:
    """Return the result with a message that quotes neither recipients nor subject nor payload.

    It never raises: the call was made, and the other emails in it have outcomes to be written.
    Texts are cut first: nothing below reads more than that.
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
        log.warning("not redacted: %s", where(error), extra={"action": "send"})
        return UNREDACTABLE


def _without(text: str, code: str | None, message: Message) -> str:
    """Return the text without the email's own words."""
    found = _found(text, _content(message))
    if len(found) > MOST_FOUND:
        raise ValueError("the payload contains nearly all of the text")
    people = _people(message)
    names = _found(text, (name for name, _ in people))
    parts = {
        "code": _any_of([code] if code else []),
        "phrase": _any_of(text for text in found if re.search(r"\s|@", text)),
        "address": _ADDRESS,
        "name": _any_of(name for name in names if " " in name),
        "mailbox": _mailboxes(text, people),
        "person": _any_of(names),
        "word": _any_of(found),
    }
    pattern = "|".join(f"(?P<{name}>{part})" for name, part in parts.items() if part)
    return re.sub(pattern, _instead, text, flags=re.IGNORECASE)


def _instead(match: re.Match[str]) -> str:
    if match.lastgroup == "code":
        return match[0]
    return ADDRESS if match.lastgroup in OF_PEOPLE else CONTENT


def _any_of(texts: Iterable[str]) -> str:
    """Return a pattern of whole words, the longest first: a shorter one may be a part of it."""
    some = "|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True))
    return rf"(?<!\w)(?:{some})(?!\w)" if some else ""


def _found(text: str, private: Iterator[str]) -> set[str]:
    """Return the private texts that may occur in the text: few, however many the payload has."""
    lowered = text.lower()
    return {each for each in private if each.lower() in lowered and names_somebody(each)}


def _people(message: Message) -> list[tuple[str, str]]:
    """Return names and addresses of all recipients and of the reply address."""
    email = message.email
    given = [email.recipient_email, message.reply_to, *email.others]
    return getaddresses([each for each in given if each])


def _mailboxes(text: str, people: list[tuple[str, str]]) -> str:
    """Return a pattern of the addresses that may be in the text, in any spelling; longest first."""
    lowered = text.lower()
    local_parts = {address.rpartition("@")[0] for _, address in people}
    found = sorted((each for each in local_parts if may_be_in(each, lowered)), key=len)
    return "|".join(pattern_of(each) for each in reversed(found))


def _content(message: Message) -> Iterator[str]:
    yield message.subject.strip()
    yield from _texts(json.loads(message.email.payload or "null", parse_int=str, parse_float=str))


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - whatever JSON holds
    """Yield all texts, however deep: a payload is not checked unless it is rendered."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value.strip()
        elif isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
