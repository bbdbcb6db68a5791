"""A message in the words of SES's API: simple content, or MIME where that is not enough."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mailgres.providers.header import Unsendable, address, mailbox, plain
from mailgres.providers.mime import compose, sender_address
from mailgres.providers.ses.faults import TOO_LARGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mailgres.model import Message

OUR_TAG = "mailgres_id"
"""The tag that carries the email's id, so that events and people find it."""

LARGEST = 40 * 1024 * 1024
"""What SES takes at most: bytes of the message with its files encoded."""

_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_TAG = 256
_MOST_TAGS = 50


def as_params(message: Message, configuration_set: str | None) -> dict[str, Any]:
    """The arguments of SendEmail; raises Unsendable."""
    _ascii(sender_address(message), "the from-address", sender=True)
    email = message.email
    params: dict[str, Any] = {
        "FromEmailAddress": mailbox(message.from_email, "the from-address"),
        "Destination": _destination(message),
        "Content": _content(message),
        "EmailTags": tags(email.tags or {}, str(email.id)),
    }
    if message.reply_to:
        reply_to = mailbox(message.reply_to, "the reply address")
        params["ReplyToAddresses"] = [_ascii(reply_to, "the reply address", sender=True)]
    if configuration_set:
        params["ConfigurationSetName"] = configuration_set
    return params


def _destination(message: Message) -> dict[str, list[str]]:
    email = message.email
    lists = {
        "ToAddresses": email.to,
        "CcAddresses": email.cc or [],
        "BccAddresses": email.bcc or [],
    }
    return {
        name: [_ascii(address(each, "a recipient"), "a recipient") for each in addresses]
        for name, addresses in lists.items()
        if addresses
    }


def _ascii(text: str, field: str, *, sender: bool = False) -> str:
    """The address, if SES can take it: it does not know SMTPUTF8."""
    if text.isascii():
        return text
    why = f"{field} has letters beyond ASCII before the @, which SES does not take"
    if sender:
        raise Unsendable("invalid_sender", why, "config")
    raise Unsendable("address_not_ascii", why)


def _content(message: Message) -> dict[str, Any]:
    """Simple content, unless the email has files or headers of its own."""
    if message.attachments or message.email.headers:
        raw = compose(message)
        if len(raw) > LARGEST:
            raise Unsendable(
                TOO_LARGE,
                f"the email has {-(-len(raw) // 2**20)} MB with its files encoded;"
                f" SES takes at most {LARGEST // 2**20}",
            )
        return {"Raw": {"Data": raw}}
    body = {"Text": message.text, "Html": message.html}
    if not message.html and not message.text:
        body["Text"] = " "  # SES wants a body, an email may have none
    return {
        "Simple": {
            "Subject": _utf8(plain(message.subject, "the subject")),
            "Body": {name: _utf8(text) for name, text in body.items() if text},
        }
    }


def _utf8(text: str) -> dict[str, str]:
    return {"Data": text, "Charset": "UTF-8"}


def tags(given: Mapping[str, str], queue_id: str) -> list[dict[str, str]]:
    """The tags as SES takes them, ours first.

    Tags are for statistics, so one that SES would refuse is bent into shape rather than the email
    lost: other characters become `_`, the rest is cut off, empty ones are left out.
    """
    bent = {OUR_TAG: queue_id}
    for name, value in sorted(given.items()):
        bent.setdefault(_tag(name), _tag(value))
    kept = [(name, value) for name, value in bent.items() if name and value][:_MOST_TAGS]
    return [{"Name": name, "Value": value} for name, value in kept]


def _tag(text: str) -> str:
    return _NOT_IN_TAGS.sub("_", str(text))[:_LONGEST_TAG]
