"""A name server on this machine, with the records that a test gives it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

Records = Mapping[str, Sequence[str]]


@contextmanager
def name_server(records: Records, *, spoil: str = "") -> Iterator[str]:
    """Answer questions for TXT records; give the address. `spoil` says how answers are wrong."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=_serve, args=(listening, records, spoil), daemon=True)
        thread.start()
        host, port = listening.getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"", (host, port))
            thread.join()


def _serve(listening: socket.socket, records: Records, spoil: str) -> None:
    while packet := (received := listening.recvfrom(4096))[0]:
        answers = {"silence": [], "garbage": [b"\xff" * 40], "other id": [b"\0\0" + b"\xff" * 30]}
        for answer in answers.get(spoil) or (
            [] if spoil == "silence" else [_answer(packet, records)]
        ):
            listening.sendto(answer, received[1])


def _answer(packet: bytes, records: Records) -> bytes:
    labels, place = [], 12
    while length := packet[place]:
        labels.append(packet[place + 1 : place + 1 + length].decode())
        place += 1 + length
    question = packet[12 : place + 5]
    found = records.get(".".join(labels).lower())
    if found is None:
        return packet[:2] + struct.pack("!5H", 0x8183, 1, 0, 0, 0) + question
    body = b"".join(_record(text.encode()) for text in found)
    # An alias before the texts, as many zones have.
    alias = b"\xc0\x0c" + struct.pack("!HHIH", 5, 1, 60, 2) + b"\xc0\x0c"
    return (
        packet[:2] + struct.pack("!5H", 0x8180, 1, len(found) + 1, 0, 0) + question + alias + body
    )


def _record(text: bytes) -> bytes:
    """A text in strings of at most 255 bytes, for a name that points to the question's."""
    parts = [text[n : n + 255] for n in range(0, len(text), 255)] or [b""]
    data = b"".join(bytes([len(part)]) + part for part in parts)
    return b"\xc0\x0c" + struct.pack("!HHIH", 16, 1, 60, len(data)) + data
