"""An email to enqueue: its fields, and how each is sent to the database.

Everything is sent as text, number or list of texts, because every driver can send these; the
queries cast it. Values that PostgreSQL could not even receive (NUL characters, invalid JSON) are
refused here, with the error of the field. The database checks everything else.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Required, TypeAlias, TypedDict
from uuid import UUID

from mailgres import errors


class Attachment(TypedDict, total=False):
    """A file that goes with an email."""

    filename: Required[str]
    content: Required[bytes | str]
    """The content; a `str` is taken as base64."""
    content_type: str
    content_id: str
    """For an image that the HTML part shows as `cid:…`."""


class EmailOptions(TypedDict, total=False):
    """The optional fields besides template, recipient and payload. None means absent.

    The exception is `tenant_id`: leave it out, or name a tenant.
    """

    user_id: UUID | str | None
    """The application's user whom the email concerns."""
    tenant_id: str
    """The tenant of the email; the queue is fair between tenants."""
    priority: int | None
    """1 (urgent) to 9 (bulk)."""
    scheduled_for: datetime | None
    """Not sent before this time; with a time zone."""
    expires_at: datetime | None
    """Expires at this time; with a time zone."""
    idempotency_key: str | None
    """Enqueuing the same key and content again returns the first id."""
    correlation_id: str | None
    """An id of the application's own, for tracing."""
    route: str | None
    """The route: which providers send it, in what order."""
    retry_policy: str | None
    max_retries: int | None
    retry_delay: timedelta | None
    """The first retry delay, instead of the policy's."""
    max_retry_delay: timedelta | None
    """The longest retry delay, instead of the policy's."""
    from_email: str | None
    reply_to: str | None
    subject: str | None
    """With `html` or `text`: inline content, which needs no template."""
    html: str | None
    text: str | None
    headers: Mapping[str, str] | None
    tags: Mapping[str, str] | None
    also_to: Iterable[str] | None
    """Further To addresses: one message, and all of them see each other."""
    cc: Iterable[str] | None
    bcc: Iterable[str] | None
    attachments: Iterable[Attachment] | None
    ignore_suppression: bool | None
    """Sent though the address is suppressed; never after a complaint."""


class Email(EmailOptions, total=False):
    """One email of many: the arguments of `enqueue` as a mapping."""

    template_type: str | None
    recipient_email: Required[str]
    payload: Mapping[str, Any]


class JsonText(str):
    """A value that is already JSON."""

    __slots__ = ()


Encoded: TypeAlias = JsonText | str | int | list[str] | None


def encode(
    email: Mapping[str, Any], fields: Mapping[str, Field] | None = None
) -> dict[str, Encoded]:
    """Return the fields of an email, or other arguments, as they are sent to the database."""
    known = FIELDS if fields is None else fields
    return {name: _encode(name, value, known) for name, value in email.items()}


def encode_as_json(email: Mapping[str, Any]) -> str:
    """Return an email as an element of the array that `enqueue_emails` takes."""
    if not isinstance(email, Mapping):
        raise errors.MalformedRequest(f"the email is {type(email).__name__}, not a mapping")
    members = (f"{json.dumps(name)}:{_as_json(value)}" for name, value in encode(email).items())
    return "{" + ",".join(members) + "}"


def _as_json(value: Encoded) -> str:
    return value if isinstance(value, JsonText) else json.dumps(value, ensure_ascii=False)


def _encode(name: str, value: object, fields: Mapping[str, Field]) -> Encoded:
    field = fields.get(name)
    if field is None:
        known = ", ".join(fields)
        raise errors.MalformedRequest("the email has an unknown field", f"Known fields: {known}.")
    if value is None:
        return None
    try:
        return field.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        # None of these texts quotes the value; the error itself may hold it, so the chain ends.
        raise field.error(f"{name} cannot be taken: {error}") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"it is {type(value).__name__}, not text")
    _check_storable(value)
    return str.__str__(value)  # drivers do not know subclasses, such as those of Enum


def _check_storable(text: str) -> None:
    if "\0" in text:
        raise ValueError("it holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair") from None


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"it is {type(value).__name__}, not a whole number")
    if abs(value) >= 2**31:
        raise ValueError("it is out of range")
    return int(value)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"it is {type(value).__name__}, not true or false")
    return value


def _uuid(value: object) -> str:
    return str(value if isinstance(value, UUID) else UUID(_text(value)))


def _moment(value: object) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"it is {type(value).__name__}, not a datetime")
    if value.utcoffset() is None:
        raise ValueError("it has no time zone; give one, as in datetime.now(UTC)")
    return value.isoformat()


def _duration(value: object) -> str:
    if not isinstance(value, timedelta):
        raise TypeError(f"it is {type(value).__name__}, not a timedelta")
    if abs(value.days) > 10_000:  # noqa: PLR2004 - far beyond what the database accepts, within what drivers send
        raise ValueError("it is out of range")
    return f"{value // timedelta(microseconds=1)} microseconds"


_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def _json(value: object) -> JsonText:
    plain = dict(value) if isinstance(value, Mapping) else value
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if _ESCAPED_NUL.search(text):
        raise ValueError("it holds a NUL character")
    _check_storable(text)
    return JsonText(text)


def _items(value: object) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"it is {type(value).__name__}, not a list")
    return list(value)


def _addresses(value: object) -> list[str]:
    return [_text(item) for item in _items(value)]


def _attachments(value: object) -> JsonText:
    return _json([_attachment(item) for item in _items(value)])


def _attachment(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"an attachment is {type(value).__name__}, not a mapping")
    content = value.get("content")
    if isinstance(content, bytes | bytearray | memoryview):
        return {**value, "content": b64encode(content).decode()}
    return dict(value)


@dataclass(frozen=True)
class Field:
    """How a field is sent, and the error for a value that cannot be sent."""

    encode: Callable[[object], Encoded]
    error: type[errors.MailgresError]

    @property
    def is_json(self) -> bool:
        """Return whether its value is an object or a list: a cell of a CSV file has it as JSON."""
        return self.encode in {_json, _addresses, _attachments}


FIELDS: dict[str, Field] = {
    "user_id": Field(_uuid, errors.MalformedRequest),
    "template_type": Field(_text, errors.UnknownTemplate),
    "recipient_email": Field(_text, errors.InvalidAddress),
    "payload": Field(_json, errors.InvalidPayload),
    "tenant_id": Field(_text, errors.InvalidKey),
    "priority": Field(_integer, errors.InvalidPriority),
    "scheduled_for": Field(_moment, errors.MalformedRequest),
    "expires_at": Field(_moment, errors.MalformedRequest),
    "idempotency_key": Field(_text, errors.InvalidKey),
    "correlation_id": Field(_text, errors.InvalidKey),
    "route": Field(_text, errors.UnknownRoute),
    "retry_policy": Field(_text, errors.UnknownRetryPolicy),
    "max_retries": Field(_integer, errors.InvalidRetries),
    "retry_delay": Field(_duration, errors.InvalidRetries),
    "max_retry_delay": Field(_duration, errors.InvalidRetries),
    "from_email": Field(_text, errors.InvalidSender),
    "reply_to": Field(_text, errors.InvalidSender),
    "subject": Field(_text, errors.InvalidContent),
    "html": Field(_text, errors.InvalidContent),
    "text": Field(_text, errors.InvalidContent),
    "headers": Field(_json, errors.InvalidHeaders),
    "tags": Field(_json, errors.InvalidHeaders),
    "cc": Field(_addresses, errors.InvalidSender),
    "bcc": Field(_addresses, errors.InvalidSender),
    "attachments": Field(_attachments, errors.InvalidAttachments),
    "also_to": Field(_addresses, errors.InvalidSender),
    "ignore_suppression": Field(_boolean, errors.MalformedRequest),
}
"""The one list of an email's fields, in the order of the arguments of `enqueue_email`.

`tests/api/test_fields.py` compares every other place that names them with this list, and says which
places lack a new field. `docs/architecture.md` has the recipe.
"""
DEFAULTS: dict[str, Encoded] = {**dict.fromkeys(FIELDS), "payload": "{}", "tenant_id": "default"}

ARGUMENTS: dict[str, Field] = {
    "email_id": Field(_uuid, errors.UnknownEmail),
    "reason": Field(_text, errors.MalformedRequest),
    "accept_duplicate": Field(bool, errors.MalformedRequest),
    "scheduled_for": Field(_moment, errors.MalformedRequest),
}
"""The arguments of the actions on an email."""
