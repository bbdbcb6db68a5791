"""An email queue that lives in your PostgreSQL."""

from typing import TYPE_CHECKING

from mailgres import errors
from mailgres.api import cancel, enqueue, enqueue_many, reschedule, retry
from mailgres.request import Attachment, Email, EmailOptions

if TYPE_CHECKING:
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

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import the worker when it is first used: an application that enqueues does not need it."""
    if name in ("Worker", "open_worker"):
        from mailgres import worker  # noqa: PLC0415

        return getattr(worker, name)
    raise AttributeError(f"module 'mailgres' has no attribute {name!r}")
