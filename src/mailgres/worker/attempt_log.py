"""Log failed attempts that are retried: one line each, always with the same keys.

Dead letters are logged by `mailgres.janitor.notify`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mailgres import measurements
from mailgres.safe_errors import redact_addresses

if TYPE_CHECKING:
    from mailgres.model import Outcome, Result, Settled

log = logging.getLogger(__name__)


def log_retried(settled: Settled, outcome: Outcome) -> None:
    """Log a failed attempt that will be retried, without any content of the email."""
    email, result = outcome.email, outcome.result
    delay = retry_delay(settled)
    measurements.BACKOFF_SECONDS.observe(delay)
    log.warning(
        "JobRetried: %s is retried",
        email.id,
        extra={
            "jobId": str(email.id),
            "companyId": email.tenant_id,
            "attempt": email.retries + 1,
            "maxAttempts": email.max_retries + 1,
            "errorCode": result.code,
            "errorReason": error_reason(result),
            "nextRetryDelay": round(delay * 1000),
            "isRetryable": True,
            "action": "finish",
            "event": "JobRetried",
            "errorClass": result.verdict,
            "deadReason": None,
            "template": email.template_type,
            "provider": email.provider,
        },
    )


def retry_delay(settled: Settled) -> float:
    """Return the seconds until the next attempt; 0 if the email only waits for its provider."""
    seconds = settled.retry_in.total_seconds() if settled.retry_in is not None else 0.0
    return round(max(seconds, 0.0), 3)


def error_reason(result: Result) -> str:
    """Return the reason in the words that `finish` stores in `error_message`."""
    text = redact_addresses(result.message or "")
    return text or result.code or f"{result.verdict} fault"
