"""What goes wrong at random during a soak, and what the doubles counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from doubles.resend import Fault
from doubles.resend_faults import FAULTS
from doubles.ses import Fault as SesFault
from doubles.smtp import Fault as SmtpFault
from doubles.smtp import SmtpDouble

LATE = 2.5
"""Seconds, which are more than the workers wait."""


def _often(fault: Fault, share: float) -> Fault:
    # The old processor has no keys: what it is not told, it would send twice, as it always did.
    return replace(fault, times=-1, share=share, keyed=fault.accepts)


RESEND = [
    *(
        _often(FAULTS[name][0], 0.02)
        for name in (
            *("reset", "reset after it was taken", "internal", "html 502", "html 200"),
            *("concurrent", "broken JSON", "unknown"),
        )
    ),
    _often(replace(FAULTS["rate"][0], headers={"retry-after": "0.3"}), 0.01),
    _often(Fault(delay=LATE, accepts=True), 0.01),
    # One email of several is to blame; of a single one the same answer is about that email.
    _often(Fault(status=422, name="validation_error", message="one", several=True), 0.01),
]
SES = [
    SesFault("InternalFailure", "oops", 500, times=-1, share=0.02),
    SesFault(reset=True, times=-1, share=0.02),
    SesFault(reset=True, accepts=True, times=-1, share=0.02),
    SesFault("Surprise", "a teapot", 418, times=-1, share=0.02),
    SesFault(delay=LATE, accepts=True, times=-1, share=0.005),
    SesFault("TooManyRequestsException", "Maximum sending rate exceeded.", times=-1, share=0.003),
]
SMTP = [
    SmtpFault("greeting", "421 4.3.2 too busy", times=-1, share=0.02),
    SmtpFault("mail", times=-1, share=0.02),
    SmtpFault("rcpt", "450 4.2.0 greylisted", times=-1, share=0.02),
    SmtpFault("end", "451 4.3.0 later", times=-1, share=0.02),
    SmtpFault("end", times=-1, share=0.02),
    SmtpFault("end", accepts=True, times=-1, share=0.02),
    SmtpFault("end", delay=LATE, accepts=True, times=-1, share=0.005),
]


def ids_at(double: Any) -> Iterable[str]:
    """Return the emails that were really sent, once for each time."""
    if isinstance(double, SmtpDouble):
        return [each.mailgres_id for each in double.accepted()]
    return [each["mailgres_id"] for each in double.accepted()]


def met(double: Any) -> int:
    """Return how often something went wrong."""
    reported: int = double.summary()["faults_met"]
    return reported
