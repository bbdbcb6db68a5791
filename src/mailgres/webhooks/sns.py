"""Messages of SNS: who signed them, from which topic they are.

A valid signature only proves that some topic of some customer sent the message, so the topic has to
be one that the settings name. The certificate and the confirmation of a subscription are asked of
the host of that topic's region and no other: both URLs in a message are a stranger's words.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from mailgres.errors import MailgresError
from mailgres.webhooks.certificates import Unavailable
from mailgres.webhooks.events import BadPayload, read_object, time_in
from mailgres.webhooks.signature import BadSignature

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from cryptography.x509 import Certificate

SIGNED_NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
SIGNED_SUBSCRIPTION = (
    "Message",
    "MessageId",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
)
SIGNED = {
    "Notification": SIGNED_NOTIFICATION,
    "SubscriptionConfirmation": SIGNED_SUBSCRIPTION,
    "UnsubscribeConfirmation": SIGNED_SUBSCRIPTION,
}
"""The fields that a signature covers, by the type of the message."""

_CERTIFICATE = re.compile(r"/SimpleNotificationService-[A-Za-z0-9]{1,100}\.pem")
_ARN = re.compile(r"arn:(aws(?:-[a-z]+)*):sns:([a-z0-9-]+):\d{12}:[A-Za-z0-9_.-]+")
_LONGEST_TOKEN = 1000
_LONGEST_FIELD = 2000
OLDEST = timedelta(days=1)
"""Messages that are older are refused: SNS retries for an hour, and a copy of an event is known for
a day at least, also if its email is not."""
FUTURE = timedelta(hours=1)
"""How far the time of a message may be ahead of the clock of this machine."""
FREE_TEXTS = ("Message", "Subject")
"""Signed fields that may hold any text."""


@dataclass(frozen=True, slots=True)
class SnsMessage:
    """A message of SNS, as it came."""

    type: str
    id: str
    topic: str
    fields: Mapping[str, Any]

    @property
    def text(self) -> str:
        """What the topic was given."""
        return str(self.fields.get("Message", ""))


def read_message(body: bytes) -> SnsMessage:
    """Return the message in a body."""
    fields = read_object(body)
    signed = SIGNED.get(_plain(fields, "Type"), ())
    plain = [_plain(fields, name) for name in signed if name not in FREE_TEXTS]
    identity, topic = _plain(fields, "MessageId"), _plain(fields, "TopicArn")
    if not (signed and all(plain) and isinstance(fields.get("Message"), str)):
        raise BadPayload("the body is not a message of SNS; raw message delivery has to be off")
    return SnsMessage(fields["Type"], identity, topic, fields)


def _plain(fields: Mapping[str, Any], name: str) -> str:
    """Return a field as it is signed; empty if it is not one line of text.

    What is signed has no separators but line breaks: with one in a value, another topic's signature
    could be read as that of ours.
    """
    value = fields.get(name)
    fits = isinstance(value, str) and len(value) <= _LONGEST_FIELD and value.isprintable()
    return value if isinstance(value, str) and fits else ""


def verify(
    message: SnsMessage,
    topics: Collection[str],
    certificate_at: Callable[[str], Certificate],
    now: datetime | None = None,
) -> None:
    """Refuse a message of another topic, one that SNS has not signed, and an old one.

    `certificate_at` fetches a certificate. It is called with an address of the topic's region only.
    """
    if message.topic not in topics:
        raise BadSignature("the topic is not among those in the settings")
    url = certificate_url(message)
    signature = _signature(message)
    certificate = certificate_at(url)
    moment = now or datetime.now(UTC)
    if not certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc:
        raise BadSignature("the certificate is not valid now")
    _check(
        certificate, signature, signed_text(message), str(message.fields.get("SignatureVersion"))
    )
    _check_time(time_in(message.fields, "Timestamp"), moment)


def host_of(topic: str) -> str:
    """Return the host of SNS in the region of a topic."""
    found = _ARN.fullmatch(topic)
    if not found:
        raise BadSignature("the topic is not an ARN")
    partition, region = found.groups()
    return f"sns.{region}.amazonaws.com{'.cn' if partition == 'aws-cn' else ''}"


def certificate_url(message: SnsMessage) -> str:
    """Return the address of the certificate, if it is SNS's own in the region of the topic."""
    given = message.fields.get("SigningCertURL")
    origin = f"https://{host_of(message.topic)}"
    path = given.removeprefix(origin) if isinstance(given, str) else ""
    if given != origin + path or not _CERTIFICATE.fullmatch(path):
        raise BadSignature("the certificate is not one of SNS in the region of the topic")
    return origin + path


def confirmation_url(message: SnsMessage) -> str:
    """Return the address that confirms a subscription, made here and not read from the message."""
    token = message.fields.get("Token")
    if not isinstance(token, str) or not 1 <= len(token) <= _LONGEST_TOKEN:
        raise BadPayload("the message has no token")
    query = urlencode({"Action": "ConfirmSubscription", "TopicArn": message.topic, "Token": token})
    return f"https://{host_of(message.topic)}/?{query}"


def signed_text(message: SnsMessage) -> bytes:
    """Return what the signature covers: the names and values of some fields, a line each."""
    fields = message.fields
    present = (name for name in SIGNED[message.type] if isinstance(fields.get(name), str))
    return "".join(f"{name}\n{fields[name]}\n" for name in present).encode("utf-8", "replace")


def _signature(message: SnsMessage) -> bytes:
    try:
        return base64.b64decode(str(message.fields.get("Signature", "")), validate=True)
    except ValueError:
        raise BadSignature("the signature is not base64") from None


def _check(certificate: Certificate, signature: bytes, text: bytes, version: str) -> None:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import padding, rsa  # noqa: PLC0415

    # SNS signs with SHA-1 unless a topic is set to version 2; nothing else is accepted.
    algorithms: dict[str, hashes.HashAlgorithm] = {
        "1": hashes.SHA1(),  # noqa: S303
        "2": hashes.SHA256(),
    }
    key = certificate.public_key()
    if version not in algorithms or not isinstance(key, rsa.RSAPublicKey):
        raise BadSignature("the version of the signature is unknown")
    try:
        key.verify(signature, text, padding.PKCS1v15(), algorithms[version])
    except InvalidSignature:
        raise BadSignature("the signature does not match") from None


def _check_time(published: datetime | None, now: datetime) -> None:
    """Refuse an old message; one of the future means that a clock is wrong."""
    if published is None:
        raise BadSignature("the time of the message cannot be read")
    if published < now - OLDEST:
        raise BadSignature("the message is more than a day old")
    if published > now + FUTURE:
        raise Unavailable("the time of the message is in the future: check the clock")


def check_library() -> None:
    """Refuse to serve SES's events without the library that checks SNS's signatures."""
    try:
        import cryptography  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError:
        raise MailgresError(
            "The webhook of SES needs cryptography, which is not installed",
            "pip install cryptography",
        ) from None
