"""Asks a name server for TXT records: one question, one answer, and never for long.

Python's own library cannot ask for them, and all that is needed is RFC 1035's simplest part.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from pathlib import Path

TXT = 16
PORT = 53
PATIENCE = 2.0
"""Seconds that a name server has to answer."""
LARGEST = 4096
RESOLV_CONF = Path("/etc/resolv.conf")

_HEADER = struct.Struct("!6H")
_RECORD = struct.Struct("!HHIH")
_RECURSE = 0x0100
_TRUNCATED, _CODE = 0x0200, 0x000F
_NO_SUCH_NAME = 3
_OPT = b"\0" + struct.pack("!HHIH", 41, LARGEST, 0, 0)
"""EDNS: answers may be larger than 512 bytes."""
_POINTER = 0xC0


class NoAnswer(Exception):
    """No name server said anything that could be used."""


def system_nameservers(path: Path = RESOLV_CONF) -> tuple[str, ...]:
    """The name servers that this machine uses."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    words = (line.split() for line in lines)
    return tuple(line[1] for line in words if len(line) > 1 and line[0] == "nameserver")[:3]


def txt(name: str, nameservers: tuple[str, ...]) -> list[str]:
    """The TXT records of a name; none if there is no such name."""
    for server in nameservers:
        try:
            return _ask(name, server)
        except (OSError, ValueError, struct.error, IndexError):
            continue  # the next one may know
    raise NoAnswer


def _ask(name: str, server: str) -> list[str]:
    host, port = _address(server)
    number = secrets.randbelow(1 << 16)
    question = _name(name) + struct.pack("!HH", TXT, 1)
    packet = _HEADER.pack(number, _RECURSE, 1, 0, 0, 1) + question + _OPT
    family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.connect(where)  # what others send is not taken for an answer
        asking.send(packet)
        deadline = time.monotonic() + PATIENCE
        while (left := deadline - time.monotonic()) > 0:
            asking.settimeout(left)
            answer = asking.recv(LARGEST)
            if answer[:2] == packet[:2]:
                return _records(answer, question)
    raise TimeoutError


def _address(server: str) -> tuple[str, int]:
    """Host and port of `192.0.2.1`, `192.0.2.1:53`, `2001:db8::1` or `[2001:db8::1]:53`."""
    if server.startswith("["):
        host, _, port = server[1:].partition("]")
        return host, int(port.removeprefix(":") or PORT)
    host, colon, port = server.rpartition(":")
    if colon and ":" not in host:
        return host, int(port)
    return server, PORT


def _name(name: str) -> bytes:
    labels = [label.encode("idna") for label in name.rstrip(".").split(".")]
    if not all(labels):
        raise ValueError("a name with nothing between two dots")
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def _records(answer: bytes, question: bytes) -> list[str]:
    """The texts in an answer."""
    _, flags, questions, answers, _, _ = _HEADER.unpack_from(answer)
    code = flags & _CODE
    if code == _NO_SUCH_NAME:
        return []
    if code or flags & _TRUNCATED or questions != 1:
        raise ValueError("an answer that cannot be used")
    place = _HEADER.size + len(question)
    found = []
    for _ in range(answers):
        place = _after_name(answer, place)
        kind, _, _, length = _RECORD.unpack_from(answer, place)
        place += _RECORD.size
        if kind == TXT:
            found.append(_text(answer[place : place + length]))
        place += length
    return found


def _after_name(answer: bytes, place: int) -> int:
    """Where the name at a place ends; a pointer is its last part."""
    while (length := answer[place]) != 0:
        if length & _POINTER == _POINTER:
            return place + 2
        place += 1 + length
    return place + 1


def _text(data: bytes) -> str:
    """The strings of a record, joined."""
    parts, place = [], 0
    while place < len(data):
        length = data[place]
        parts.append(data[place + 1 : place + 1 + length])
        place += 1 + length
    return b"".join(parts).decode("utf-8", "replace")
