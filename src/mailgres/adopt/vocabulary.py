"""The words that hand-rolled queues use for columns, statuses and tables, in several languages.

Names are compared in one form: lower case, words joined by underscores, no accents.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PREFIX = re.compile(r"^(?:e_?mail|mail|correo|message|msg|queue|q)_")

FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "id": ("id", "uuid", "queue_id", "msg_id", "guid"),
    "recipient_email": (
        *("recipient_email", "to_email", "email_to", "recipient", "recipients", "to_address"),
        *("to_addresses", "recipient_address", "recipient_emails", "to_emails", "mail_to", "to"),
        *("para", "destinatario", "destinatarios", "correo_destino", "destinataire", "empfaenger"),
        *("email_address", "user_email", "email", "correo", "to_addr"),
    ),
    "subject": ("subject", "asunto", "betreff", "sujet", "objet", "assunto", "subject_line"),
    "html": ("html", "html_body", "body_html", "html_content", "html_message", "content_html"),
    "text": ("text", "text_body", "body_text", "plain_text", "text_content", "plain_body"),
    "body": ("body", "content", "cuerpo", "contenido", "mensaje", "corpo", "message", "contenu"),
    "template_type": (
        *("template_type", "template_name", "template_key", "template_slug", "template"),
        *("template_id", "email_type", "mail_type", "notification_type", "plantilla"),
        *("tipo_correo", "type", "kind", "tipo", "label"),
    ),
    "payload": (
        *("payload", "template_data", "template_variables", "template_vars", "variables", "vars"),
        *("merge_data", "data", "context", "params", "dynamic_data", "datos", "props"),
    ),
    "status": (
        *("status", "state", "estado", "estatus", "statut", "situacao", "queue_status"),
        *("email_status", "sent", "is_sent", "email_sent", "enviado", "processed", "is_processed"),
    ),
    "retries": (
        *("retries", "retry_count", "attempts", "attempt_count", "num_attempts", "times_tried"),
        *("number_of_retries", "intentos", "reintentos", "versuche", "retry_attempts"),
        *("attempts_made", "tentativas"),
    ),
    "max_retries": ("max_retries", "max_attempts", "retry_limit", "max_intentos", "max_tries"),
    "next_retry_at": (
        "next_retry_at",
        "next_attempt_at",
        "next_attempt",
        "retry_at",
        "next_try_at",
    ),
    "scheduled_for": (
        *("scheduled_for", "scheduled_at", "send_at", "send_after", "scheduled_time", "run_at"),
        *("programado_para", "deliver_at", "not_before", "process_after", "scheduled_date"),
    ),
    "sent_at": (
        *("sent_at", "completed_at", "sent_on", "enviado_en", "fecha_envio", "processed_at"),
        *("delivered_at", "date_sent", "sent_time"),
    ),
    "created_at": (
        *("created_at", "queued_at", "created", "creado_en", "fecha_creacion", "created_on"),
        *("inserted_at", "enqueued_at", "date_created", "criado_em", "cree_le"),
    ),
    "dead_at": ("dead_at", "abandoned_at", "failed_at", "gave_up_at"),
    "last_attempt_at": (
        *("last_attempt_at", "last_attempt", "latest_attempt", "last_tried_at", "attempted_at"),
        *("last_retry_at", "ultimo_intento"),
    ),
    "error_message": (
        *("error_message", "last_error", "error", "error_msg", "error_text", "failure_reason"),
        *("fail_reason", "latest_error", "mensaje_error", "erro", "fehler"),
    ),
    "priority": ("priority", "prioridad", "prioridade", "prioritaet"),
    "from": (
        *("from", "from_email", "from_address", "sender", "sender_email", "remitente"),
        *("mail_from", "expediteur"),
    ),
    "reply_to": ("reply_to", "replyto", "reply_to_email"),
    "cc": ("cc", "cc_email", "cc_emails", "cc_addresses"),
    "bcc": ("bcc", "bcc_email", "bcc_emails", "cco"),
    "headers": ("headers", "email_headers", "extra_headers"),
    "user_id": ("user_id", "recipient_user_id", "usuario_id"),
    "tenant_id": ("tenant_id", "organization_id", "organisation_id", "org_id", "workspace_id"),
    "idempotency_key": ("idempotency_key", "dedupe_key", "dedup_key", "unique_key"),
    "correlation_id": ("correlation_id", "request_id", "trace_id"),
    "provider_message_id": (
        *("provider_message_id", "resend_id", "resend_email_id", "provider_id", "external_id"),
        *("sendgrid_message_id", "ses_message_id", "message_id"),
    ),
    "expires_at": ("expires_at", "expiry", "valid_until", "expira_en", "expiration"),
    "retry_until": ("deadline", "retry_until", "give_up_at"),
    "retry_delay": ("backoff", "retry_delay"),
    "lease_until": ("lease_until", "locked_until", "vt", "visible_at", "lock_expires_at"),
    "locked_at": ("locked_at", "claimed_at", "processing_started_at", "picked_at", "started_at"),
    "route": ("route", "backend_alias"),
}
"""What a column may be, with the names it has, the most telling ones first."""

_TEXT = frozenset({"text", "enum"})
_TIME = frozenset({"time", "local_time"})
KINDS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(
        ("subject", "html", "text", "body", "from", "reply_to", "error_message"), _TEXT
    ),
    "recipient_email": frozenset({"text"}),
    "template_type": frozenset({"text", "enum", "number", "uuid"}),
    "payload": frozenset({"json"}),
    "headers": frozenset({"json"}),
    "status": frozenset({"text", "enum", "number", "boolean"}),
    **dict.fromkeys(("retries", "max_retries", "retry_delay"), frozenset({"number"})),
    **dict.fromkeys(
        (
            *("next_retry_at", "scheduled_for", "sent_at", "created_at", "dead_at", "expires_at"),
            *("last_attempt_at", "retry_until", "lease_until", "locked_at"),
        ),
        _TIME,
    ),
    "priority": frozenset({"number", "text", "enum"}),
    **dict.fromkeys(("cc", "bcc"), frozenset({"text"})),
    "user_id": frozenset({"uuid"}),
    "tenant_id": frozenset({"uuid", "text", "number"}),
    **dict.fromkeys(("idempotency_key", "correlation_id", "provider_message_id", "route"), _TEXT),
}
"""The kinds of values that a field can have; a column of another kind is something else."""

TIMES: Final = frozenset(field for field, kinds in KINDS.items() if kinds == _TIME)
CONTENT: Final = ("subject", "html", "text", "body")

STATUSES: Final[dict[str, tuple[str, ...]]] = {
    "waiting": (
        *("pending", "queued", "waiting", "new", "scheduled", "ready", "created", "unsent"),
        *("enqueued", "to_send", "todo", "pendiente", "en_cola", "programado", "nuevo"),
        *("por_enviar", "en_attente", "pendente", "wartend", "ausstehend", "offen"),
    ),
    "processing": (
        *("processing", "sending", "in_progress", "in_flight", "inflight", "running", "locked"),
        *("claimed", "started", "active", "working", "procesando", "enviando", "en_proceso"),
        *("en_cours", "processando"),
    ),
    "sent": (
        *("sent", "completed", "complete", "done", "delivered", "success", "succeeded"),
        *("finished", "processed", "opened", "clicked", "enviado", "enviada", "entregado"),
        *("completado", "envoye", "gesendet"),
    ),
    "failed_retriable": (
        *("error", "errored", "retry", "retrying", "requeued", "deferred", "soft_failed"),
        *("will_retry", "temporary_failure", "reintento", "reintentar", "reintentando"),
    ),
    "failed_final": (
        *("failed", "abandoned", "dead", "dead_letter", "dlq", "exhausted", "rejected"),
        *("permanently_failed", "permanent_failure", "undeliverable", "bounced", "complained"),
        *("expired", "fallido", "fallida", "echec", "fehlgeschlagen", "falhou", "failure"),
    ),
    "cancelled": (
        *("cancelled", "canceled", "suppressed", "skipped", "unsubscribed", "ignored"),
        *("cancelado", "cancelada", "omitido", "annule", "storniert"),
    ),
    "left_alone": ("received", "inbound", "incoming", "recibido"),
}
"""What a status means, with the words for it."""

MEANINGS: Final = (*STATUSES, "unknown")

EMAIL_WORDS: Final = frozenset({"email", "mail", "e_mail", "correo", "courriel", "smtp"})
OUTBOUND_WORDS: Final = frozenset({"outbound", "outgoing", "out", "saliente", "ausgehend"})
KIND_NAMES: Final = frozenset(
    {"type", "kind", "channel", "medium", "canal", "direction", "tipo", "topic", "event_type"}
)
"""Columns that may say which rows are outgoing emails."""

QUEUE_NAMES: Final = frozenset(
    {"queue", "queues", "outbox", "cola", "spool", "fila", "warteschlange", "scheduled", "pending"}
)
MAIL_NAMES: Final = frozenset(
    {"email", "emails", "mail", "mails", "correo", "correos", "message", "messages", "mensajes"}
)
OTHER_NAMES: Final = frozenset(
    {
        *("log", "logs", "history", "event", "events", "archive", "template", "templates"),
        *("suppressed", "suppression", "suppressions", "unsubscribe", "token", "tokens", "bounce"),
        *("bounces", "contact", "contacts", "subscriber", "subscribers", "setting", "settings"),
        *("preference", "preferences", "user", "users", "profile", "profiles", "inbox", "state"),
        *("emailtemplate", "attachment", "attachments", "dlq"),
    }
)
"""Words in the names of tables that hold something else than waiting emails."""

PRIORITIES: Final[dict[str, int]] = {
    **dict.fromkeys(("urgent", "critical", "now", "urgente", "highest"), 1),
    **dict.fromkeys(("high", "alta", "hoch", "haute"), 3),
    **dict.fromkeys(("normal", "medium", "default", "media", "mittel"), 5),
    **dict.fromkeys(("low", "baja", "baixa", "niedrig", "basse"), 7),
    **dict.fromkeys(("bulk", "lowest", "marketing"), 9),
}


def plain(name: str) -> str:
    """Return a name in the form in which names are compared."""
    words = _CAMEL.sub("_", name.strip().rsplit("/", 1)[-1])
    bare = "".join(c for c in unicodedata.normalize("NFKD", words) if not unicodedata.combining(c))
    return re.sub(r"[^a-z0-9]+", "_", bare.lower()).strip("_")


def place(field: str, name: str) -> int | None:
    """Return how telling a name is for a field, 0 being the best; None if it is another name."""
    known, given = FIELDS[field], plain(name)
    if given in known:
        return known.index(given)
    shorter = _PREFIX.sub("", given)
    return known.index(shorter) + len(known) if shorter in known else None


def meaning(status: str) -> str | None:
    """Return what a status means; None if no word is known for it."""
    word = plain(status)
    return next((each for each, words in STATUSES.items() if word in words), None)
