"""An email queue that lives in your PostgreSQL."""

from typing import TYPE_CHECKING

from mailgres.version import __version__

if TYPE_CHECKING:
    from mailgres import errors
    from mailgres.api import cancel, enqueue, enqueue_many, reschedule, retry
    from mailgres.request import Attachment, Email, EmailOptions
    from mailgres.worker import Worker, open_worker

__all__ = [
    "Attachment",
    "Email",
    "EmailOptions",
    "Worker",
    "__version__",
    "cancel",
    "enqueue",
    "enqueue_many",
    "errors",
    "open_worker",
    "reschedule",
    "retry",
]

_PLACES = {
    **dict.fromkeys(("cancel", "enqueue", "enqueue_many", "reschedule", "retry"), "api"),
    **dict.fromkeys(("Attachment", "Email", "EmailOptions"), "request"),
    **dict.fromkeys(("Worker", "open_worker"), "worker"),
}


def __getattr__(name: str) -> object:
    """Import a part when it is first used: an application that enqueues needs no worker."""
    from importlib import import_module  # noqa: PLC0415

    if name == "errors":
        return import_module("mailgres.errors")
    if name not in _PLACES:
        raise AttributeError(f"module 'mailgres' has no attribute {name!r}")
    found = getattr(import_module(f"mailgres.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
