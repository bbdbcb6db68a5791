"""SES shows a fault to a real worker. It takes no keys: the template decides what is repeated."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from doubles.ses import ACCESS_KEY, Fault, SesDouble
from e2e.harness import E2eHarness, accepted, once_each
from support.queue import HOLD, RESEND

THROTTLED = "TooManyRequestsException"
FAULTS: dict[str, tuple[Fault, str]] = {
    # "config": of the account; "sender": of one from-address
    "rate": (Fault(THROTTLED, "Maximum sending rate exceeded."), "rate"),
    "throttled": (Fault("ThrottlingException", "Rate exceeded"), "rate"),
    "daily quota": (Fault(THROTTLED, "Daily message quota exceeded."), "quota"),
    "limit": (Fault("LimitExceededException", "too much"), "quota"),
    "suspended": (Fault("AccountSuspendedException", "suspended"), "config"),
    "paused": (Fault("SendingPausedException", "paused"), "config"),
    "no configuration set": (Fault("NotFoundException", "does not exist"), "config"),
    "unknown key": (Fault("UnrecognizedClientException", "invalid token"), "config"),
    "expired session": (Fault("ExpiredTokenException", "expired"), "config"),
    "paused, in words": (Fault("MessageRejected", "Sending is paused."), "config"),
    "denied": (Fault("AccessDeniedException", "not authorized"), "config"),
    "wrong secret": (Fault("SignatureDoesNotMatch", "the signature"), "config"),
    "mail from": (Fault("MailFromDomainNotVerifiedException", "not verified"), "sender"),
    "unverified": (Fault("MessageRejected", "Email address is not verified."), "sender"),
    "rejected": (Fault("MessageRejected", "Your content is bad."), "permanent"),
    "bad request": (Fault("BadRequestException", "no"), "permanent"),
    "unknown": (Fault("Surprise", "a teapot", 418), "transient"),
    "internal": (Fault("InternalFailure", "oops", 500), "ambiguous"),
    "unavailable": (Fault("ServiceUnavailable", "slow", 503), "transient"),
    "html 502": (Fault(), "ambiguous"),
    "html 200": (Fault(status=200, accepts=True), "ambiguous"),
    "reset": (Fault(reset=True), "ambiguous"),
    "reset after it was taken": (Fault(reset=True, accepts=True), "ambiguous"),
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
def test_each_fault_of_ses_has_its_outcome(
    name: str, count: int, harness: E2eHarness, ses: SesDouble
) -> None:
    fault, verdict = FAULTS[name]
    ses.add_faults(replace(fault, times=-1))
    emails = harness.send(count)
    status, error_class, spent = AFTER[verdict]
    tried, waiting = (
        harness.state()[status, spent, error_class],
        harness.state()["pending", 0, None],
    )
    assert tried + waiting == count
    # What concerns all closes the door: the others may wait behind it untouched.
    assert tried >= (1 if verdict in ("rate", "quota", "config") else count)
    provider = harness.provider("ses")
    assert provider.circuit == ("open" if verdict == "config" else "closed")
    assert provider.limited_by == (verdict if verdict in ("rate", "quota") else None)
    assert accepted(ses) == {}

    ses.clear_faults()
    if verdict == "permanent":
        harness.clock.forward(timedelta(days=1))
        harness.work()
        assert accepted(ses) == {}
        return
    harness.work_until_settled()
    assert set(harness.statuses()) == {"sent"}
    assert harness.value("SELECT sum(retries) FROM email_queue") == spent * count
    assert accepted(ses) == once_each(emails)


@COUNTS
@pytest.mark.parametrize("policy", [HOLD, RESEND], ids=["hold", "resend"])
@pytest.mark.parametrize("name", [name for name in FAULTS if FAULTS[name][1] == "ambiguous"])
def test_an_ambiguous_answer_of_ses_follows_the_policy_of_the_template(
    name: str, policy: str, count: int, harness: E2eHarness, ses: SesDouble
) -> None:
    fault, _ = FAULTS[name]
    ses.add_faults(replace(fault, times=-1))
    check_uncertain(harness, ses, policy, count, taken=fault.accepts)


@COUNTS
@pytest.mark.parametrize("policy", [HOLD, RESEND], ids=["hold", "resend"])
@pytest.mark.parametrize("taken", [False, True], ids=["lost", "taken"])
def test_an_answer_of_ses_after_the_timeout_follows_the_policy(
    policy: str, count: int, harness: E2eHarness, ses: SesDouble, *, taken: bool
) -> None:
    ses.add_faults(Fault(delay=1.0, accepts=taken, times=-1))
    harness.set(provider_timeout="200ms")
    check_uncertain(harness, ses, policy, count, taken=taken)


def check_uncertain(
    harness: E2eHarness, ses: SesDouble, policy: str, count: int, *, taken: bool
) -> None:
    """A held email is never sent again; otherwise it arrives twice if the first attempt arrived."""
    emails = harness.send(count, policy)
    after = ("failed", 0) if policy == HOLD else ("pending", 1)
    assert harness.state() == {(*after, "ambiguous"): count}
    before = accepted(ses)
    assert before == (once_each(emails) if taken else {})
    ses.clear_faults()
    harness.set(provider_timeout="30s")
    if policy == HOLD:
        reasons = harness.rows("SELECT DISTINCT dead_reason::text FROM email_queue")
        assert [row.dead_reason for row in reasons] == ["uncertain"]
        harness.clock.forward(timedelta(days=1))
        harness.work()
        assert accepted(ses) == before
    else:
        harness.work_until_settled()
        assert harness.state() == {("sent", 1, None): count}
        assert accepted(ses) == before + once_each(emails)


def test_an_outage_opens_the_circuit(harness: E2eHarness, ses: SesDouble) -> None:
    """Five failures, then one probe at a time: it spends nothing."""
    ses.add_faults(Fault("InternalFailure", "oops", 500, times=-1))
    tried = harness.send(8, RESEND)
    assert harness.provider("ses").circuit == "open"
    later = harness.send(3, RESEND)
    spent = harness.state()["pending", 1, "ambiguous"]
    assert 5 <= spent <= 8
    assert harness.state()["pending", 0, None] == 11 - spent
    harness.clock.set(harness.provider("ses").circuit_until)
    harness.work()
    assert harness.events_of("ses")[-2:] == ["CircuitBreakerHalfOpen", "CircuitBreakerOpened"]
    assert harness.value("SELECT sum(retries) FROM email_queue") == spent
    ses.clear_faults()
    harness.work_until_settled()
    assert accepted(ses) == once_each(tried + later)


def test_an_unreachable_ses_opens_the_circuit_and_others_wait(
    harness: E2eHarness, ses: SesDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was sent: a retry each, until the circuit opens and the others wait untouched."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_SESV2", "http://127.0.0.1:9")
    tried = harness.send(8)
    assert harness.provider("ses").circuit == "open"
    later = harness.send(3)
    spent = harness.state()["pending", 1, "transient"]
    assert 5 <= spent <= 8
    assert harness.state()["pending", 0, None] == 11 - spent
    monkeypatch.setenv("AWS_ENDPOINT_URL_SESV2", ses.url)
    harness.work_until_settled()
    assert harness.value("SELECT sum(retries) FROM email_queue") == spent
    assert accepted(ses) == once_each(tried + later)


def test_an_unverified_domain_at_ses_parks_the_email(harness: E2eHarness, ses: SesDouble) -> None:
    ses.set(unverified=("new.example.com",))
    parked = harness.enqueue(from_email="a@new.example.com")
    sent = harness.send()
    assert accepted(ses) == once_each(sent)
    assert harness.email(parked).parked_since is not None
    ses.set(unverified=())
    harness.work_until_settled()
    assert accepted(ses) == once_each([*sent, parked])
    assert harness.state() == {("sent", 0, None): 4}


def test_a_wrong_key_of_ses_spends_no_retry(harness: E2eHarness, ses: SesDouble) -> None:
    ses.set(keys=("AKIAOTHER",))
    emails = harness.send()
    assert harness.provider("ses").circuit == "open"
    assert "UnrecognizedClientException" in harness.provider("ses").circuit_reason
    ses.set(keys=(ACCESS_KEY,))
    harness.work_until_settled()
    assert harness.state() == {("sent", 0, None): 3}
    assert accepted(ses) == once_each(emails)


@pytest.mark.parametrize("region", ["xx-nowhere-1", None])
def test_a_wrong_region_of_ses_spends_no_retry(
    region: str | None, harness: E2eHarness, monkeypatch: pytest.MonkeyPatch, ses: SesDouble
) -> None:
    """A region that does not exist, and none at all: the circuit says so, the rows wait."""
    monkeypatch.delenv("AWS_ENDPOINT_URL_SESV2")
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    given: dict[str, Any] = {"ses_region": region} if region else {"ses_region": ""}
    harness.set(**given)
    harness.send()
    assert harness.provider("ses").circuit == "open"
    assert "region" in harness.provider("ses").circuit_reason
    assert harness.value("SELECT sum(retries) FROM email_queue") == 0
    assert ses.accepted() == []
