"""Watches every log line of the suite: no recipient, subject, payload or secret may be in one.

An address of any kind is taken for a recipient. What tests enqueue through `support.queue` and the
secrets that they use are looked for by their very words.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

from doubles.resend_parts import KEY

ADDRESS = re.compile(r"""[^\s<>"'(),;:=]+@[^\s<>"'(),;:]+""")
SECRETS = (KEY, "AKIADOUBLE", "s3cr3t", "re_one", "re_two", "a-secret-for-the-tests")
SUBJECTS = ("Welcome to", "Confirm your email", "Boas-vindas", "Confirme seu")
SHORTEST = 5
"""Characters of what is looked for; shorter words are in any line."""
CONTENT = {
    *("payload", "subject", "html", "text", "headers", "from_email", "reply_to"),
    *("also_to", "cc", "bcc"),
}

_enqueued: set[str] = set()


def remember(options: dict[str, Any]) -> None:
    """Look from now on for what an email is enqueued with."""
    for name in CONTENT & options.keys():
        _enqueued.update(text for text in _texts(options[name]) if len(text) >= SHORTEST)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def leaks(line: str) -> list[str]:
    """Return what a line of a log must not have told."""
    words = (*SECRETS, *SUBJECTS, *_enqueued)
    return [*ADDRESS.findall(line), *(word for word in words if word in line)]


def check(lines: str) -> None:
    """Fail if one of the lines tells too much."""
    reported = {line: found for line in lines.splitlines() if (found := leaks(line))}
    assert not reported, f"log lines quote what they must not: {reported}"


class Watch(logging.Handler):
    """Keeps the lines that mailgres logs in this process, with every key and every traceback."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.partition(".")[0] == "mailgres":
            extra = {key: value for key, value in vars(record).items() if key not in _USUAL}
            self.lines.append(f"{logging.Formatter().format(record)} {extra}")


_USUAL = frozenset(vars(logging.makeLogRecord({})))


def watch() -> Iterator[Watch]:
    """Watch the logs of one test; fails it if they told too much."""
    _enqueued.clear()
    handler, root, ours = Watch(), logging.getLogger(), logging.getLogger("mailgres")
    before = ours.level
    ours.setLevel(logging.DEBUG)
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        ours.setLevel(before)
    check("\n".join(handler.lines))
