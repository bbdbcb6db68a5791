"""The ways in which a text may spell an address whose local part is known.

Such as `ana%40example.com` in a URL, `ana+40example.com` in SMTP's xtext, `ana=example.com` in a
bounce address, `o&#39;brien@example.com` in HTML, `ana (at) example.com`, and the mailbox alone.
Any domain may follow whatever stands for the @, as A-labels or as U-labels.
`sql/30_engine/30_outcome/25_redact_recipients.sql` redacts the same where no worker takes part.
"""

from __future__ import annotations

import re

SHORTEST = 3
"""Characters of a text that is searched for; shorter ones are in every sentence."""
SHORTEST_NUMBER = 6
"""Digits of a number that is searched for; shorter ones are in every code."""
LONGEST_LOCAL = 64
_WORDS = """
    abuse account address admin and any are arrived attempt bad batch before but call can cancelled
    code connection contact content copy daily domain earlier email error exceeded expired failed
    false fault for from hand has hello help host info invalid key last late limit longer mail
    mailbox marked message missing monthly name none noreply not null office policy postmaster
    provider quota rate reason recipient refused rejected repeat reported request safely sales send
    sender sent server service subject support suppressed team template test text the this time too
    true try unavailable unknown user variable verified was webmaster whole with without worker you
    your
"""
ORDINARY = frozenset(_WORDS.split())
"""Words of error messages that identify nobody; SQL's `ordinary_words` has the same."""

_START = r"(?:(?<![^\W_])|(?<=%[0-9a-f][0-9a-f]))"
_END = r"(?![^\W_])"
_AT = (
    r"(?:@|\uff20|\ufe6b|%(?:25)?40|[+=]40|&#0{0,4}64;|&#x0{0,4}40;|&commat;|\\u0040"
    r"|[(\[{]\s{0,3}at\s{0,3}[)\]}]|(?:=|\sat\s)(?=\s{0,3}[^\s.]+\.[^\s]))"
)
_DOMAIN = r"""[^\s<>"'(),;:]+"""
_NAMED = {"&": "|&amp;", "'": "|&apos;", "+": "|&plus;|%20"}


def names_somebody(text: str) -> bool:
    """Return whether a text, alone, identifies a person."""
    if not re.search(r"[^\W\d_]", text):
        return sum(map(str.isdigit, text)) >= SHORTEST_NUMBER
    return len(text) >= SHORTEST and text.lower() not in ORDINARY


def may_be_in(local: str, lowered: str) -> bool:
    """Return whether the local part may be in a lower-case text: spellings keep its letters."""
    letters = re.search(r"[a-z0-9]+", local.lower())
    return bool(local) and (letters is None or letters[0] in lowered)


def pattern_of(local: str) -> str:
    """Return a pattern of the address by its local part; match it ignoring case."""
    spelled = "".join(map(_spellings, local[:LONGEST_LOCAL]))
    alone = f"|{_END}" if names_somebody(local) else ""
    return rf"""{_START}{spelled}(?:(?:"|&quot;)?\s{{0,3}}{_AT}\s{{0,3}}{_DOMAIN}{alone})"""


def _spellings(one: str) -> str:
    """Return a pattern of the character as it is, escaped, and as URLs, SMTP and HTML write it."""
    if one.isascii() and one.isalnum():
        return one
    coded = "".join(rf"(?:%(?:25)?|[+=]){byte:02x}" for byte in one.encode())
    entities = rf"&#0{{0,4}}{ord(one)};|&#x0{{0,4}}{ord(one):x};{_NAMED.get(one, '')}"
    return rf"(?:\\?{re.escape(one)}|{coded}|{entities})"
