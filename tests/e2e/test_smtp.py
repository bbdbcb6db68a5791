"""An SMTP server shows a fault at any step to a real worker."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from doubles.smtp import Fault, SmtpDouble, serve
from e2e.harness import E2eHarness, accepted, once_each
from support.queue import HOLD, RESEND

FAULTS: dict[str, tuple[Fault, str]] = {
    "busy": (Fault("greeting", "421 4.3.2 too busy"), "transient"),
    "blocked": (Fault("greeting", "554 5.7.1 blocked"), "config"),
    "hangs up at once": (Fault("greeting"), "transient"),
    "hangs up at EHLO": (Fault("ehlo"), "transient"),
    "too many connections": (Fault("greeting", "421 4.7.0 Too many connections"), "rate"),
    "rate": (Fault("mail", "454 Throttling failure: Maximum sending rate exceeded."), "rate"),
    "quota": (Fault("mail", "454 Throttling failure: Daily message quota exceeded."), "quota"),
    "wants a login": (Fault("mail", "530 5.7.0 authenticate first"), "config"),
    "sender": (Fault("mail", "550 we do not like you"), "sender"),
    "hangs up at MAIL": (Fault("mail"), "transient"),
    "greylisted": (Fault("rcpt", "450 4.2.0 greylisted"), "transient"),
    "mailbox busy": (Fault("rcpt", "550 4.2.1 mailbox busy"), "transient"),
    "no such user": (Fault("rcpt", "550 5.1.1 no such user"), "permanent"),
    "mailbox full": (Fault("rcpt", "552 5.2.2 full"), "permanent"),
    "policy": (Fault("rcpt", "550 5.7.1 policy"), "sender"),
    "hangs up at RCPT": (Fault("rcpt"), "transient"),
    "later": (Fault("data", "451 later"), "transient"),
    "refused in the end": (Fault("end", "554 refused"), "permanent"),
    "later in the end": (Fault("end", "451 4.3.0 later"), "transient"),
    "nonsense": (Fault("end", "999 nonsense"), "ambiguous"),
    "hangs up in the end": (Fault("end"), "ambiguous"),
    "hangs up after it was taken": (Fault("end", accepts=True), "ambiguous"),
}
AFTER = {
    # class of the fault: status, error_class, retries spent
    "rate": ("pending", "rate", 0),
    "quota": ("pending", "quota", 0),
    "config": ("pending", "config", 0),
    "sender": ("pending", "config", 0),
    "transient": ("pending", "transient", 1),
    "permanent": ("failed", "permanent", 0),
}
COUNTS = pytest.mark.parametrize("count", [1, 3], ids=["single", "several"])


@COUNTS
@pytest.mark.parametrize("name", [name for name in FAULTS if FAULTS[name][1] != "ambiguous"])
def test_each_fault_of_smtp_has_its_outcome(
    name: str, count: int, harness: E2eHarness, smtp: SmtpDouble
) -> None:
    fault, verdict = FAULTS[name]
    smtp.add_faults(replace(fault, times=-1))
    emails = harness.send(count)
    status, error_class, spent = AFTER[verdict]
    tried, waiting = (
        harness.state()[status, spent, error_class],
        harness.state()["pending", 0, None],
    )
    assert tried + waiting == count
    # What concerns all closes the door: the others may wait behind it untouched.
    assert tried >= (1 if verdict in ("rate", "quota", "config") else count)
    assert harness.provider("smtp").circuit == ("open" if verdict == "config" else "closed")
    assert accepted(smtp) == {}
    suppressed = harness.value("SELECT count(*) FROM email_suppressions")
    assert suppressed == (count if name == "no such user" else 0)

    smtp.clear_faults()
    if verdict == "permanent":
        harness.clock.forward(timedelta(days=1))
        harness.work()
        assert accepted(smtp) == {}
        return
    harness.work_until_settled()
    assert set(harness.statuses()) == {"sent"}
    assert harness.value("SELECT sum(retries) FROM email_queue") == spent * count
    assert accepted(smtp) == once_each(emails)


@COUNTS
@pytest.mark.parametrize("policy", [HOLD, RESEND], ids=["hold", "resend"])
@pytest.mark.parametrize("name", [name for name in FAULTS if FAULTS[name][1] == "ambiguous"])
def test_an_ambiguous_answer_of_smtp_follows_the_policy_of_the_template(
    name: str, policy: str, count: int, harness: E2eHarness, smtp: SmtpDouble
) -> None:
    """A held email is never sent again; otherwise it arrives twice if the first attempt arrived."""
    fault, _ = FAULTS[name]
    smtp.add_faults(replace(fault, times=-1))
    emails = harness.send(count, policy)
    before = accepted(smtp)
    assert before == (once_each(emails) if fault.accepts else {})
    after = ("failed", 0) if policy == HOLD else ("pending", 1)
    assert harness.state() == {(*after, "ambiguous"): count}
    smtp.clear_faults()
    if policy == HOLD:
        harness.clock.forward(timedelta(days=1))
        harness.work()
        assert accepted(smtp) == before
    else:
        harness.work_until_settled()
        assert harness.state() == {("sent", 1, None): count}
        assert accepted(smtp) == before + once_each(emails)


@COUNTS
@pytest.mark.parametrize("taken", [False, True], ids=["lost", "taken"])
def test_an_smtp_answer_that_comes_too_late_is_uncertain(
    count: int, harness: E2eHarness, smtp: SmtpDouble, *, taken: bool
) -> None:
    """It answers to the whole message when nobody waits any more: held, it is not repeated."""
    smtp.add_faults(Fault("end", delay=1.0, accepts=taken, times=-1))
    harness.set(provider_timeout="200ms")
    emails = harness.send(count, HOLD)
    assert harness.state() == {("failed", 0, "ambiguous"): count}
    assert {harness.email(email).dead_reason for email in emails} == {"uncertain"}
    smtp.clear_faults()
    harness.set(provider_timeout="30s")
    harness.clock.forward(timedelta(days=1))
    harness.work()
    assert set(accepted(smtp)) <= set(once_each(emails))
    assert set(accepted(smtp).values()) <= {1}


@pytest.mark.parametrize(
    ("step", "verdict"), [("greeting", "transient"), ("rcpt", "transient"), ("end", "ambiguous")]
)
def test_an_smtp_reply_after_the_timeout_follows_the_policy(
    step: str, verdict: str, harness: E2eHarness, smtp: SmtpDouble
) -> None:
    """It answers in the end, but nobody waits any more."""
    smtp.add_faults(Fault(step, delay=1.0, times=-1))  # type: ignore[arg-type]
    harness.set(provider_timeout="200ms")
    emails = harness.send(2, RESEND)
    assert harness.state() == {("pending", 1, verdict): 2}
    smtp.clear_faults()
    harness.set(provider_timeout="30s")
    harness.work_until_settled()
    assert accepted(smtp) == once_each(emails)


def test_an_unreachable_smtp_server_opens_the_circuit_and_others_wait(
    harness: E2eHarness, smtp: SmtpDouble
) -> None:
    harness.set(smtp_url="smtp://127.0.0.1:9?tls=none")
    tried = harness.send(8)
    assert harness.provider("smtp").circuit == "open"
    later = harness.send(3)
    spent = harness.state()["pending", 1, "transient"]
    assert 5 <= spent <= 8
    assert harness.state()["pending", 0, None] == 11 - spent
    harness.use_smtp(smtp)
    harness.work_until_settled()
    assert harness.value("SELECT sum(retries) FROM email_queue") == spent
    assert accepted(smtp) == once_each(tried + later)


def test_a_wrong_smtp_password_spends_no_retry(harness: E2eHarness) -> None:
    """The circuit opens and says why; no row is harmed, and no secret told."""
    with serve(SmtpDouble(user="shop", password="right")) as double:
        harness.use("smtp", smtp_url=double.url.replace("right", "wr0ng"))
        emails = harness.send()
        provider = harness.provider("smtp")
        assert provider.circuit == "open"
        assert provider.circuit_reason
        assert "wr0ng" not in provider.circuit_reason
        harness.use_smtp(double)
        harness.work_until_settled()
        assert harness.state() == {("sent", 0, None): 3}
        assert accepted(double) == once_each(emails)


def test_a_copy_that_the_server_refuses_is_in_email_logs(
    harness: E2eHarness, smtp: SmtpDouble
) -> None:
    smtp.add_faults(Fault("rcpt", "550 5.1.1 <cc@example.com> no such user", to="cc@"))
    queue_id = harness.enqueue(cc=["cc@example.com"], bcc=["bcc@example.com"])
    harness.work()
    assert harness.email(queue_id).status == "sent"
    (entry,) = [each for each in harness.log(queue_id) if each.event == "copy_refused"]
    assert (entry.error_code, entry.provider) == ("5.1.1", "smtp")
    assert "no such user" in entry.error_message
    assert "cc@example.com" not in entry.error_message
    assert entry.error_detail.startswith("cc@example.com: 550 5.1.1")
