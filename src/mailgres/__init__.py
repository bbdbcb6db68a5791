"""An email queue that lives in your PostgreSQL."""

from mailgres import errors
from mailgres.api import cancel, enqueue, enqueue_many, reschedule, retry
from mailgres.request import Attachment, Email, EmailOptions

__all__ = [
    "Attachment",
    "Email",
    "EmailOptions",
    "__version__",
    "cancel",
    "enqueue",
    "enqueue_many",
    "errors",
    "reschedule",
    "retry",
]

__version__ = "0.1.0"
