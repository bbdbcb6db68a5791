"""Bounces: the types of Resend and SES, and the status codes of RFC 3463, as data.

Resend sends through SES and passes its types on, so one table is for both.
"""

from __future__ import annotations

import re
from typing import NamedTuple

KIND_OF_TYPE = {
    "permanent": "hard",
    "transient": "soft",
    "temporary": "soft",
    "undetermined": "undetermined",
}
"""`bounceType` of SES, `bounce.type` of Resend, in lower case."""

REASON_OF_SUBTYPE = {
    "noemail": "mailbox_unknown",
    "mailboxfull": "mailbox_full",
    "messagetoolarge": "size",
    "contentrejected": "content",
    "attachmentrejected": "content",
    "messagerejected": "policy",
    "customtimeoutexceeded": "timed_out",
}
"""`bounceSubType` of SES, `bounce.subType` of Resend. The others leave it to the status code."""

NOT_SENT_SUBTYPES = frozenset({"suppressed", "onaccountsuppressionlist", "unsubscribedrecipient"})
"""The provider did not send: the address is on a list of its own. The event is `suppressed`."""

REASON_OF_STATUS = (
    (r"[45]\.1\.[78]", "policy"),
    (r"[45]\.1\.\d+", "mailbox_unknown"),
    (r"[45]\.2\.1", "mailbox_unknown"),
    (r"[45]\.2\.2", "mailbox_full"),
    (r"[45]\.(2\.3|3\.4)", "size"),
    (r"[45]\.4\.\d+", "timed_out"),
    (r"[45]\.6\.\d+", "content"),
    (r"[45]\.7\.\d+", "policy"),
)
"""The enhanced status code of the recipient's server; the first pattern that matches."""

SOFT_REASONS = frozenset({"mailbox_full", "timed_out"})
"""A full mailbox or a silent server may be back tomorrow: `soft`, whatever the type says."""

_STATUS = re.compile(r"(?<![\d.])([45]\.\d{1,3}\.\d{1,3})(?![\d.])")


class Bounce(NamedTuple):
    """What a bounce means."""

    event: str
    kind: str
    reason: str


def bounce_of(kind: str | None, subtype: str | None, *explanations: str | None) -> Bounce:
    """Return what a bounce means by its type, its subtype, a status code and a text with one."""
    final = KIND_OF_TYPE.get((kind or "").lower(), "undetermined")
    sub = (subtype or "").lower()
    if sub in NOT_SENT_SUBTYPES:
        return Bounce("suppressed", final, "other")
    reason = REASON_OF_SUBTYPE.get(sub) or reason_of_status(*explanations) or "other"
    if reason in SOFT_REASONS:
        final = "soft"
    return Bounce("bounced", final, reason)


def reason_of_status(*texts: str | None) -> str | None:
    """Return the reason that the first status code with a meaning in these texts stands for."""
    for text in texts:
        found = _STATUS.search(text or "")
        code = found[1] if found else ""
        for pattern, why in REASON_OF_STATUS:
            if re.fullmatch(pattern, code):
                return why
    return None
