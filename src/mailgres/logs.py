"""The format of logs: one line for each event, JSON for machines or coloured for a terminal.

Modules log with the standard library, `logging.getLogger(__name__)`, a message and the keys in
`extra`; this module formats the records. It is the only one that imports structlog.

Callers keep private data out of what they log. This is the last safeguard: an exception is logged
by its type and place, and addresses and the secrets of the settings are replaced.
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

SECRET = "<secret>"  # noqa: S105 - shown instead of a secret
SHORTEST_SECRET = 8
"""Characters; shorter secrets would match ordinary words."""

_OF_RECORDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Lines(logging.StreamHandler["TextIO"]):
    """The handler of `start`, so that starting again replaces it.

    Standard error is looked up for every line: it may have been replaced.
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
    """Log to standard error from now on, in the format and from the level of the settings.

    Libraries log only warnings and above, whatever the level: their lower levels quote the calls
    they make.
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
    # It warns at every attempt to connect: `mailgres.outage` logs an outage once, and its end.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_exit
    threading.excepthook = _log_thread_exit


def formatter(settings: Settings, *, terminal: bool) -> logging.Formatter:
    """Return the formatter of records."""
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
    """Builds the keys of a line from a record."""

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
    """Replaces addresses, secrets and control characters."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first: a secret may be a part of another.
        self._secrets = sorted(secrets, key=len, reverse=True)

    def __call__(self, _logger: WrappedLogger, _name: str, given: EventDict) -> EventDict:
        return {key: self._clean(value) for key, value in given.items()}

    def _clean(self, value: Any) -> Any:  # noqa: ANN401 - any value may be logged
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
    """Return the values that must never be shown: keys, tokens, the passwords in URLs."""
    given = [getattr(settings, name) for name, each in DEFINITIONS.items() if each.secret]
    for account in settings.named_accounts:
        options = account.options.items()
        given += [text for key, text in options if DEFINITIONS[f"{account.kind}_{key}"].secret]
    found = (text for value in given if value for text in _parts(str(value)))
    return frozenset(text for text in found if len(text) >= SHORTEST_SECRET)


def _parts(secret: str) -> Iterator[str]:
    """Yield a secret and, if it is a URL, the password in it, encoded and decoded."""
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
    """Log an exception that ends the program; Python's own output may quote emails."""
    if issubclass(kind, KeyboardInterrupt):
        return
    log.critical("the program failed: %s", where(error), extra={"action": "end"})


def _log_thread_exit(end: threading.ExceptHookArgs) -> None:
    if end.exc_value is not None:
        name = end.thread.name if end.thread else "unknown"
        reported = {"action": "end", "thread_name": name}
        log.critical("a thread failed: %s", where(end.exc_value), extra=reported)
