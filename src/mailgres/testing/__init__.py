"""For the tests of applications: a database of their own, an outbox, and a clock that they move.

Installing mailgres gives pytest the fixtures `mailgres_database`, `outbox` and `async_outbox`
(docs/testing.md). `travel`, `freeze` and `reset` work with any test runner.
"""

from typing import TYPE_CHECKING

from mailgres.testing.clock import freeze, reset, travel

if TYPE_CHECKING:
    from mailgres.testing.async_outbox import AsyncOutbox
    from mailgres.testing.databases import databases
    from mailgres.testing.outbox import CapturedEmail, EmailNotFound, Outbox

__all__ = [
    "AsyncOutbox",
    "CapturedEmail",
    "EmailNotFound",
    "Outbox",
    "databases",
    "freeze",
    "reset",
    "travel",
]

_PLACES = {
    "AsyncOutbox": "async_outbox",
    "CapturedEmail": "outbox",
    "EmailNotFound": "outbox",
    "Outbox": "outbox",
    "databases": "databases",
}


def __getattr__(name: str) -> object:
    """Import the worker and the migrations when they are first used."""
    if name not in _PLACES:
        raise AttributeError(f"module 'mailgres.testing' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"mailgres.testing.{_PLACES[name]}"), name)
