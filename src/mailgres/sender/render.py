"""Make messages of emails: content, sender, attachments."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import psycopg
from psycopg_pool import PoolTimeout

from mailgres.errors import TemplateFailed
from mailgres.model import Message, Outcome, Result
from mailgres.providers.prepare import not_prepared
from mailgres.templates import Rendered, TemplateCache, load_contents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from mailgres.model import Attachment, ClaimedEmail
    from mailgres.templates import Content
    from mailgres.worker.store import Senders, Store

SENDERS_CACHE_SECONDS = 10.0
"""Seconds for which the addresses of templates and tenants are cached."""


class Renderer:
    """Renders with the version pinned at the first attempt, whatever was pushed since.

    The sender is the email's own, else its template's, its tenant's, the default.
    """

    def __init__(self, store: Store, from_email: str | None, reply_to: str | None = None) -> None:
        self._store = store
        self._default = (from_email, reply_to)
        self._cache = TemplateCache(self._load)
        self._lock = threading.Lock()
        self._senders: Senders = ({}, {})
        self._senders_until = 0.0

    def render(self, emails: Sequence[ClaimedEmail]) -> list[Message | Outcome]:
        """Return a message for each email, or the outcome of one that cannot be sent."""
        with_files = [email for email in emails if email.has_attachments]
        files = self._store.attachments(with_files) if with_files else {}
        senders = self._addresses()
        return [self._one(email, files, senders) for email in emails]

    def _one(
        self, email: ClaimedEmail, files: Mapping[UUID, Sequence[Attachment]], senders: Senders
    ) -> Message | Outcome:
        try:
            content = self._content(email)
        except TemplateFailed as error:
            fault = Result("permanent", code="template_failed", message=error.message, called=False)
            return Outcome(email, fault)
        except (psycopg.Error, PoolTimeout):
            raise  # a fault of the database, not of this email
        except Exception as error:  # noqa: BLE001 - no email may harm the others of its batch
            return Outcome(email, not_prepared(email, error))
        template = senders[0].get(email.template_type, (None, None))
        tenant = senders[1].get(email.tenant_id, (None, None))
        choices = ((email.from_email, email.reply_to), template, tenant, self._default)
        from_email = next((sender for sender, _ in choices if sender), None)
        if from_email is None:
            return Outcome(email, NO_SENDER)
        reply_to = next((reply for _, reply in choices if reply), None)
        return Message(email, from_email, reply_to, *content, files.get(email.id, ()))

    def _content(self, email: ClaimedEmail) -> Rendered:
        if email.subject is not None:
            return Rendered(email.subject, email.html, email.text or "")
        if email.template_version is None:
            raise TemplateFailed(f"there is no template {email.template_type!r}")
        return self._cache.render(email.template_type, email.template_version, email.payload)

    def _addresses(self) -> Senders:
        """Return the senders of templates and tenants, read now and then."""
        with self._lock:
            if time.monotonic() >= self._senders_until:
                self._senders = self._store.senders()
                self._senders_until = time.monotonic() + SENDERS_CACHE_SECONDS
            return self._senders

    def _load(self, name: str, version: int) -> Mapping[str, Content]:
        with self._store.connection() as connection:
            return load_contents(connection, name, version)


NO_SENDER = Result(
    "config",
    code="no_sender",
    message="there is no from-address: set MAILGRES_FROM_EMAIL, or one for the template or tenant",
    called=False,
)
