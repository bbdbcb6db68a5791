"""Prepares tags for the APIs of Resend and SES, which accept the same characters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mailgres.model import ClaimedEmail

ID_TAG = "mailgres_id"
"""The tag with the email's id, for webhooks, events and people."""

_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 256


def tags_of(email: ClaimedEmail) -> list[tuple[str, str]]:
    """Return the names and values of an email's tags, the tag with its id first.

    Tags are for statistics, so an invalid tag is corrected and the email is sent: other characters
    become `_`, long tags are cut, empty tags are left out.
    """
    tags = {ID_TAG: str(email.id)}
    for name, value in sorted((email.tags or {}).items()):
        tags.setdefault(_valid(name), _valid(value))
    return [(name, value) for name, value in tags.items() if name and value]


def _valid(text: str) -> str:
    return _NOT_IN_TAGS.sub("_", str(text))[:_LONGEST]
