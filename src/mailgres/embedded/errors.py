"""The one exception that callers of the embedded server handle."""

from __future__ import annotations

from mailgres.errors import MailgresError


class EmbeddedError(MailgresError):
    """The embedded PostgreSQL cannot be used.

    Message and hint can be shown to a person as they are, without a traceback.
    """

    default_hint = "Name a PostgreSQL server of your own with --database-url instead."
