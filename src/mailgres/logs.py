"""How logs look: one line for an event, JSON for machines or coloured for a terminal.

Modules log with the standard library, `logging.getLogger(__name__)`, a message and the keys in
`extra`; here their records become lines. The only module that knows structlog.

What must not be in a log is kept out where it is logged. This is the last door on the way: an
exception is told by where it came from, addresses and the secrets of the settings are replaced.
"""

from __future__ import annotations

import logging
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import structlog

from mailgres.safe_errors import printable, redact_addresses, where
from mailgres.settings.model import DEFINITIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import TextIO

    from structlog.typing import EventDict, WrappedLogger

    from mailgres.settings import Settings

log = logging.getLogger(__name__)

SECRET = "<secret>"  # noqa: S105 - what is shown instead of one
SHORTEST_SECRET = 8
"""Characters; shorter ones are words that lines are full of."""

_OF_RECORDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Lines(logging.StreamHandler["TextIO"]):
    """The handler of `start`, so that starting again replaces it.

    Standard error is looked up for every line: somebody may have put another in its place.
    """

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__(stream or sys.stderr)
        self._standard = stream is None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        if self._standard:
            self.stream = sys.stderr
        super().emit(record)


def start(settings: Settings, stream: TextIO | None = None) -> None:
    """Log to standard error from now on, in the form and from the level that the settings say.

    Libraries are heard from warnings on, whatever the level: what they say below it quotes the
    calls they make.
    """
    handler = _Lines(stream)
    handler.setFormatter(formatter(settings, terminal=handler.stream.isatty()))
    root = logging.getLogger()
    for former in [each for each in root.handlers if isinstance(each, _Lines)]:
        root.removeHandler(former)
    root.addHandler(handler)
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("mailgres").setLevel(level)
    # It complains at every attempt to connect: `mailgres.outage` says it once, and the return.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_exit
    threading.excepthook = _log_thread_exit


def formatter(settings: Settings, *, terminal: bool) -> logging.Formatter:
    """Return what makes lines of records."""
    console = settings.log_format == "console" or (settings.log_format == "auto" and terminal)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[_Keys(settings.worker_name), _Scrub(secrets_of(settings))],
        processors=[
            structlog.dev.ConsoleRenderer(colors=terminal, event_key="message", sort_keys=False)
            if console
            else structlog.processors.JSONRenderer(ensure_ascii=False)
        ],
    )


class _Keys:
    """Makes the keys of a line out of a record."""

    def __init__(self, worker: str) -> None:
        self._worker = worker

    def __call__(self, _logger: WrappedLogger, _name: str, given: EventDict) -> EventDict:
        record: logging.LogRecord = given["_record"]
        reported: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "message": given["event"],
        }
        reported |= {key: value for key, value in vars(record).items() if key not in _OF_RECORDS}
        reported |= {"logger": record.name, "worker": reported.get("worker") or self._worker}
        if given.get("exc_info") and given["exc_info"][1] is not None:
            reported["exception"] = where(given["exc_info"][1])
        return reported


class _Scrub:
    """Replaces addresses and secrets, and all that would end a line or move a cursor."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first: one may be a part of another.
        self._secrets = sorted(secrets, key=len, reverse=True)

    def __call__(self, _logger: WrappedLogger, _name: str, given: EventDict) -> EventDict:
        return {key: self._clean(value) for key, value in given.items()}

    def _clean(self, value: Any) -> Any:  # noqa: ANN401 - whatever somebody logs
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            return {self._text(str(key)): self._clean(each) for key, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._clean(each) for each in value]
        return self._text(str(value))

    def _text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, SECRET)
        return printable(redact_addresses(text))


def secrets_of(settings: Settings) -> frozenset[str]:
    """Return the values that must never be seen: keys, tokens, the passwords in URLs."""
    given = [getattr(settings, name) for name, each in DEFINITIONS.items() if each.secret]
    for account in settings.named_accounts:
        given += [account.api_key, account.url]
    found = (text for value in given if value for text in _parts(str(value)))
    return frozenset(text for text in found if len(text) >= SHORTEST_SECRET)


def _parts(secret: str) -> Iterator[str]:
    """A secret, and if it is a URL, the password in it as it is written and as it is meant."""
    yield secret
    try:
        password = urlsplit(secret).password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)


def _log_exit(
    kind: type[BaseException], error: BaseException, _traceback: TracebackType | None
) -> None:
    """Log what ends the program, where Python would show texts and lines that quote emails."""
    if issubclass(kind, KeyboardInterrupt):
        return
    log.critical("the program failed: %s", where(error), extra={"action": "end"})


def _log_thread_exit(end: threading.ExceptHookArgs) -> None:
    if end.exc_value is not None:
        name = end.thread.name if end.thread else "unknown"
        reported = {"action": "end", "thread_name": name}
        log.critical("a thread failed: %s", where(end.exc_value), extra=reported)
