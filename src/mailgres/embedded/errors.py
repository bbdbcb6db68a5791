"""The one exception a caller of the embedded server has to know."""

from __future__ import annotations

from mailgres.errors import MailgresError


class EmbeddedError(MailgresError):
    """The embedded PostgreSQL cannot be used.

    Message and hint are meant to be shown to a person as they are, without a traceback.
    """

    default_hint = "Name a PostgreSQL server of your own with --database-url instead."
