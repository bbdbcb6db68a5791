"""Translates a message for SES's API: simple content, or MIME if necessary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailgres.providers.header import Unsendable, address, mailbox, plain
from mailgres.providers.mime import compose, sender_address
from mailgres.providers.ses.faults import TOO_LARGE
from mailgres.providers.tags import tags_of

if TYPE_CHECKING:
    from mailgres.model import Message

LARGEST = 40 * 1024 * 1024
"""The limit of SES: bytes of a message with its encoded attachments."""

_MOST_TAGS = 50


def as_params(message: Message, configuration_set: str | None) -> dict[str, Any]:
    """Return the arguments of SendEmail; raise Unsendable if the message is invalid."""
    _ascii(sender_address(message), "the from-address", sender=True)
    email = message.email
    params: dict[str, Any] = {
        "FromEmailAddress": mailbox(message.from_email, "the from-address"),
        "Destination": _destination(message),
        "Content": _content(message),
        "EmailTags": [
            {"Name": name, "Value": value} for name, value in tags_of(email)[:_MOST_TAGS]
        ],
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
    """Return the address if SES accepts it: SES does not support SMTPUTF8."""
    if text.isascii():
        return text
    why = f"{field} has non-ASCII letters before the @, which SES does not accept"
    if sender:
        raise Unsendable("invalid_sender", why, "config")
    raise Unsendable("address_not_ascii", why)


def _content(message: Message) -> dict[str, Any]:
    """Return simple content, or MIME if the email has attachments or headers."""
    if message.attachments or message.email.headers:
        raw = compose(message)
        if len(raw) > LARGEST:
            raise Unsendable(
                TOO_LARGE,
                f"the email has {-(-len(raw) // 2**20)} MB with its attachments;"
                f" SES accepts at most {LARGEST // 2**20}",
            )
        return {"Raw": {"Data": raw}}
    body = {"Text": message.text, "Html": message.html}
    if not message.html and not message.text:
        body["Text"] = " "  # SES requires a body, an email may have none
    return {
        "Simple": {
            "Subject": _utf8(plain(message.subject, "the subject")),
            "Body": {name: _utf8(text) for name, text in body.items() if text},
        }
    }


def _utf8(text: str) -> dict[str, str]:
    return {"Data": text, "Charset": "UTF-8"}
