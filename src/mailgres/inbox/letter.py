"""A captured message as a mail program would get it: its source and its headers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from mailgres.model import Attachment
from mailgres.providers.header import Unsendable
from mailgres.providers.mime import Letter, sender_mailbox, write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Content = Callable[[int], bytes | None]

MOST_SOURCE = 1024 * 1024
"""Characters of the source that a page shows; the file to download has all."""


def no_content(_position: int) -> bytes:
    """Leave out the content of files."""
    return b""


def source_of(found: Mapping[str, Any], content_of: Content = no_content) -> bytes:
    """Return a captured message as a file of a mail program."""
    message, key = found["message"], str(found["key"])
    try:
        return write(_letter(found, message, key, content_of))
    except Unsendable as fault:
        return f"This message cannot be written: {fault.message}\r\n".encode()


def _letter(
    found: Mapping[str, Any], message: Mapping[str, Any], key: str, content_of: Content
) -> Letter:
    domain = sender_mailbox(message["from"], "the from-address").rpartition("@")[2]
    return Letter(
        from_email=message["from"],
        to=message["to"],
        subject=message["subject"],
        text=message["text"],
        html=message["html"],
        also_to=message["also_to"] or (),
        cc=message["cc"] or (),
        reply_to=message["reply_to"],
        headers=message["headers"] or {},
        message_id=f"<{'.'.join(key.split('/')[1:])}@{domain}>",
        date=datetime.fromisoformat(found["captured_at"]),
        attachments=[
            Attachment(
                file["filename"],
                file["content_type"],
                file["content_id"],
                content_of(file["position"]) or b"",
            )
            for file in found["files"]
        ],
    )


def headers_of(source: bytes) -> list[tuple[str, str]]:
    """Return the headers of a source, unfolded."""
    head = source.partition(b"\r\n\r\n")[0].decode("utf-8", "replace")
    lines = head.replace("\r\n ", " ").replace("\r\n\t", " ").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return [(name, value.strip()) for name, colon, value in pairs if colon]
