"""Tells in the log of tries that failed: one line each, always with the same keys."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mailgres import meters
from mailgres.trace import without_addresses

if TYPE_CHECKING:
    from mailgres.model import Outcome, Result, Settled

log = logging.getLogger(__name__)


def tell_failed(settled: Settled, outcome: Outcome) -> None:
    """Log a try that failed, without a word of the email.

    `JobRetried`: it is tried again. `JobFailed`: it was the last one.
    """
    email, result = outcome.email, outcome.result
    dead = settled.status == "failed"
    delay = None if dead else retry_delay(settled)
    if delay is not None:
        meters.BACKOFF_SECONDS.observe(delay)
    told = {
        "jobId": str(email.id),
        "companyId": email.tenant_id,
        "attempt": email.retries + 1,
        "maxAttempts": email.max_retries + 1,
        "errorCode": result.code,
        "errorReason": error_reason(result),
        "nextRetryDelay": delay,
        "isRetryable": not dead,
        "action": "finish",
        "event": "JobFailed" if dead else "JobRetried",
        "errorClass": result.verdict,
        "deadReason": settled.dead_reason,
        "template": email.template_type,
        "provider": email.provider,
    }
    if dead:
        log.error("JobFailed: %s is dead: %s", email.id, settled.dead_reason, extra=told)
    else:
        log.warning("JobRetried: %s is tried again", email.id, extra=told)


def retry_delay(settled: Settled) -> float:
    """Seconds until the next try; 0 if it only waits for its provider."""
    seconds = settled.retry_in.total_seconds() if settled.retry_in is not None else 0.0
    return round(max(seconds, 0.0), 3)


def error_reason(result: Result) -> str:
    """What is wrong, in the words that `finish` stores in `error_message`."""
    text = without_addresses(result.message or "")
    return text or result.code or f"{result.verdict} fault"
