"""SES against a double that has faults on order: what each becomes, and what had gone out."""

from __future__ import annotations

import base64
import email
import email.policy
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from doubles.ses import (
    ACCESS_KEY,
    ACCOUNT,
    SEND,
    Fault,
    Reply,
    SesDouble,
    environ,
    error,
    moto,
    serve,
)
from mailgres.model import Attachment, Limits, Result
from mailgres.providers.faults import classify
from mailgres.providers.ses.faults import SES_RULES
from mailgres.providers.ses.provider import LIMITS_CACHE_SECONDS, LIMITS_RETRY_SECONDS, SesProvider
from providers.mails import PDF, mail

REGION = "eu-west-1"
TIMEOUT = 1.0


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[SesDouble]:
    with serve(SesDouble()) as running:
        for name, value in environ(running.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        yield running


@pytest.fixture
def provider(double: SesDouble) -> Iterator[SesProvider]:
    made = SesProvider(REGION, timeout=TIMEOUT, endpoint_url=double.url)
    yield made
    made.close()


def request_of(double: SesDouble) -> dict[str, Any]:
    (accepted,) = double.accepted()
    request: dict[str, Any] = accepted["request"]
    return request


def test_ses_gets_a_simple_email(double: SesDouble, provider: SesProvider) -> None:
    message = mail(
        from_email="Ana, Açme <ana@exämple.com>",
        reply_to="Help <help@example.com>",
        subject="Olá",
        cc=["cc@example.com"],
        bcc=["bcc@faß.de"],
        tags={"campaign": "a b", "mailgres_id": "not ours"},
    )
    (result,) = provider.send([message])
    assert result == Result("sent", double.accepted()[0]["id"])
    request = request_of(double)
    assert request["FromEmailAddress"] == "=?utf-8?b?QW5hLCBBw6dtZQ==?= <ana@xn--exmple-cua.com>"
    assert request["ReplyToAddresses"] == ["Help <help@example.com>"]
    assert request["Destination"] == {
        "ToAddresses": ["ana@example.org"],
        "CcAddresses": ["cc@example.com"],
        "BccAddresses": ["bcc@xn--fa-hia.de"],
    }
    simple = request["Content"]["Simple"]
    assert simple["Subject"] == {"Data": "Olá", "Charset": "UTF-8"}
    assert simple["Body"]["Html"]["Data"] == "<p>Hello</p>"
    assert simple["Body"]["Text"]["Data"] == "Hello"
    assert "ConfigurationSetName" not in request
    assert double.accepted()[0]["tags"] == {
        "mailgres_id": str(message.email.id),
        "campaign": "a_b",
    }


@pytest.mark.parametrize(
    "given", [{"attachments": [PDF]}, {"headers": {"List-Unsubscribe": "<https://example.com/u>"}}]
)
def test_ses_gets_mime_where_simple_content_is_not_enough(
    given: dict[str, Any], double: SesDouble, provider: SesProvider
) -> None:
    assert provider.send([mail(bcc=["bcc@example.com"], **given)])[0].verdict == "sent"
    request = request_of(double)
    assert request["Destination"]["BccAddresses"] == ["bcc@example.com"]
    raw = base64.b64decode(request["Content"]["Raw"]["Data"])
    parsed = email.message_from_bytes(raw, policy=email.policy.default)
    assert parsed["Bcc"] is None
    assert b"bcc@example.com" not in raw
    assert parsed["From"] == "Shop <noreply@example.com>"
    assert ("List-Unsubscribe" in parsed) == ("headers" in given)
    assert [part.get_filename() for part in parsed.iter_attachments()] == (
        ["a.pdf"] if "attachments" in given else []
    )


def test_ses_gets_the_configuration_set(double: SesDouble) -> None:
    provider = SesProvider(REGION, endpoint_url=double.url, configuration_set="events")
    provider.send([mail()])
    provider.close()
    assert request_of(double)["ConfigurationSetName"] == "events"


def test_an_empty_email_has_a_body_at_ses(double: SesDouble, provider: SesProvider) -> None:
    assert provider.send([mail(html=None, text="")])[0].verdict == "sent"
    assert request_of(double)["Content"]["Simple"]["Body"] == {
        "Text": {"Data": " ", "Charset": "UTF-8"}
    }


API_FAULTS: list[tuple[str, str, str, bool]] = [
    ("TooManyRequestsException", "Maximum sending rate exceeded.", "rate", True),
    ("TooManyRequestsException", "Daily message quota exceeded.", "quota", True),
    ("ThrottlingException", "Rate exceeded", "rate", True),
    ("ThrottlingException", "Daily message quota exceeded", "quota", True),
    ("LimitExceededException", "too much", "quota", True),
    ("AccountSuspendedException", "suspended", "config", True),
    ("SendingPausedException", "paused", "config", True),
    ("MailFromDomainNotVerifiedException", "no", "config", False),
    ("NotFoundException", "Configuration set <x> does not exist", "config", True),
    ("MessageRejected", "Email address is not verified. a@b.de", "config", False),
    ("MessageRejected", "Sending paused for this account.", "config", True),
    ("MessageRejected", "Illegal content", "permanent", False),
    ("BadRequestException", "Missing final '@domain'", "permanent", False),
    ("UnrecognizedClientException", "The security token is invalid", "config", True),
    ("InvalidSignatureException", "does not match", "config", True),
    ("SignatureDoesNotMatch", "does not match", "config", True),
    ("ExpiredTokenException", "expired", "config", True),
    ("AccessDeniedException", "not authorized to perform: ses:SendEmail", "config", True),
    ("AccessDeniedException", "on resource: arn:aws:ses:x:1:identity/b.de", "config", False),
    ("SomethingNew", "hm", "transient", False),
]


@pytest.mark.parametrize(("code", "text", "verdict", "account"), API_FAULTS)
def test_each_error_of_ses_has_its_class(
    *, code: str, text: str, verdict: str, account: bool, double: SesDouble, provider: SesProvider
) -> None:
    double.add_faults(Fault(code, text))
    (result,) = provider.send([mail()])
    assert (result.verdict, result.code, result.account) == (verdict, code, account)
    assert result.message == text
    assert text in str(result.detail)
    assert not result.suppress
    assert double.summary()["accepted"] == 0
    assert double.calls[SEND] == 1


@pytest.mark.parametrize(
    ("fault", "verdict", "went_out"),
    [
        (Fault("InternalFailure", status=500), "ambiguous", 0),
        (Fault("InternalFailure", status=500, accepts=True), "ambiguous", 1),
        (Fault("Unknown", status=503), "ambiguous", 0),
        (Fault(None, "Bad Gateway", status=502), "ambiguous", 0),
        (Fault(None, "<h1>hello</h1>", status=200, accepts=True), "ambiguous", 1),
        (Fault(reset=True), "ambiguous", 0),
        (Fault(reset=True, accepts=True), "ambiguous", 1),
        (Fault(accepts=True, delay=TIMEOUT * 2), "ambiguous", 1),
    ],
)
def test_an_ses_call_without_an_answer_is_ambiguous(
    fault: Fault, verdict: str, went_out: int, double: SesDouble, provider: SesProvider
) -> None:
    double.add_faults(fault)
    (result,) = provider.send([mail()])
    assert result.verdict == verdict
    assert double.summary()["accepted"] == went_out
    assert double.calls[SEND] == 1, "botocore tried again by itself"


def test_ses_obeys_retry_after(
    double: SesDouble, provider: SesProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_header(self: Fault) -> Reply:
        return error(self.code or "", self.text, headers={"retry-after": "30"})

    monkeypatch.setattr(Fault, "reply", with_header)
    double.add_faults(Fault("TooManyRequestsException", "Maximum sending rate exceeded."))
    (result,) = provider.send([mail()])
    assert result.verdict == "rate"
    assert result.retry_after == timedelta(seconds=30)


def test_a_refused_connection_to_ses_is_transient(double: SesDouble) -> None:
    del double
    provider = SesProvider(REGION, endpoint_url="http://127.0.0.1:1", timeout=TIMEOUT)
    (result,) = provider.send([mail()])
    assert (result.verdict, result.code) == ("transient", "EndpointConnectionError")


@pytest.mark.usefixtures("double")
def test_an_unknown_ses_region_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SESV2", "http://127.0.0.1:1")
    provider = SesProvider("eu-nowhere-9", timeout=TIMEOUT, name="ses-acme")
    for result in (provider.check(), *provider.send([mail()])):
        assert (result.verdict, result.account) == ("config", True)
        assert result.code == "no_such_region"
        assert "eu-nowhere-9" in str(result.message)
    assert SesProvider(REGION, timeout=TIMEOUT).check().verdict == "transient"


@pytest.mark.usefixtures("double")
def test_ses_without_credentials_is_a_fault_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    provider = SesProvider(REGION)
    for result in (provider.check(), *provider.send([mail()])):
        assert (result.verdict, result.account) == ("config", True)
        assert result.code == "NoCredentialsError"
        assert "set AWS_ACCESS_KEY_ID" in str(result.message)


@pytest.mark.usefixtures("double")
def test_ses_without_a_region_is_a_fault_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    (result,) = SesProvider(None).send([mail()])
    assert (result.verdict, result.account, result.code) == ("config", True, "NoRegionError")


@pytest.mark.usefixtures("double")
def test_an_unknown_aws_profile_is_a_fault_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    (result,) = SesProvider(REGION).send([mail()])
    assert (result.verdict, result.account) == ("config", True)


def test_a_wrong_ses_key_is_a_fault_of_the_configuration(
    double: SesDouble, provider: SesProvider
) -> None:
    double.set(keys=("another",))
    for result in (provider.check(), *provider.send([mail()])):
        assert (result.verdict, result.account) == ("config", True)
    double.set(keys=(ACCESS_KEY,))
    assert provider.check() == Result("sent")


def test_checking_ses_reports_pauses_and_missing_rights(
    double: SesDouble, provider: SesProvider
) -> None:
    assert provider.check().verdict == "sent"
    double.set(paused=True)
    assert provider.check().verdict == "config"
    double.add_faults(Fault("AccessDeniedException", "no ses:GetAccount", path=ACCOUNT))
    found = provider.check()
    assert found.verdict == "sent"
    assert "lack ses:GetAccount" in str(found.untried)
    assert double.summary()["accepted"] == 0


@pytest.mark.parametrize(
    ("given", "code", "verdict"),
    [
        ({"recipient_email": "é@example.com"}, "address_not_ascii", "permanent"),
        ({"cc": ["é@example.com"]}, "address_not_ascii", "permanent"),
        ({"from_email": "é@example.com"}, "invalid_sender", "config"),
        ({"from_email": "A\r\nBcc: x <a@example.com>"}, "invalid_sender", "config"),
        ({"reply_to": "é@example.com"}, "invalid_sender", "config"),
        ({"subject": "a\r\nBcc: x@example.com"}, "invalid_header", "permanent"),
        ({"headers": {"From": "x@example.com"}}, "invalid_header", "permanent"),
        ({"headers": {"X-A": "a\nBcc: x@example.com"}}, "invalid_header", "permanent"),
    ],
)
def test_emails_that_ses_cannot_send_are_refused_before_the_call(
    given: dict[str, Any], code: str, verdict: str, double: SesDouble, provider: SesProvider
) -> None:
    (result,) = provider.send([mail(**given)])
    assert (result.verdict, result.code, result.account) == (verdict, code, False)
    assert double.calls[SEND] == 0


def test_an_email_too_large_for_ses_is_refused_before_the_call(
    double: SesDouble, provider: SesProvider
) -> None:
    file = Attachment("a.bin", "application/octet-stream", None, bytes(32 * 2**20))
    (result,) = provider.send([mail(attachments=[file])])
    assert (result.verdict, result.code) == ("permanent", "message_too_large")
    assert result.message == ("the email has 44 MB with its attachments; SES accepts at most 40")
    assert double.calls[SEND] == 0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_limits_of_the_ses_account_are_read_now_and_then(double: SesDouble) -> None:
    clock = Clock()
    provider = SesProvider(REGION, endpoint_url=double.url, clock=clock)
    provider.send([mail()])
    assert provider.limits() == Limits(calls_per_second=14.0, daily=None, sent_today=1)
    double.set(daily=200, rate=1.0)
    clock.now += LIMITS_CACHE_SECONDS - 1
    assert provider.limits() == Limits(calls_per_second=14.0, daily=None, sent_today=1)
    assert double.calls[ACCOUNT] == 1
    clock.now += 1
    reported = Limits(calls_per_second=1.0, daily=200, sent_today=1)
    assert provider.limits() == reported
    clock.now += LIMITS_CACHE_SECONDS
    double.add_faults(Fault("InternalFailure", status=500, path=ACCOUNT))
    assert provider.limits() == reported
    assert provider.limits() == reported
    assert double.calls[ACCOUNT] == 3
    clock.now += LIMITS_RETRY_SECONDS
    provider.limits()
    assert double.calls[ACCOUNT] == 4
    provider.close()


def test_ses_sends_without_the_right_to_read_limits(
    double: SesDouble, provider: SesProvider
) -> None:
    double.add_faults(Fault("AccessDeniedException", path=ACCOUNT))
    assert provider.limits() is None
    assert provider.send([mail()])[0].verdict == "sent"


def test_threads_share_one_ses_client(double: SesDouble) -> None:
    provider = SesProvider(REGION, endpoint_url=double.url, connections=4)
    results: list[Result] = []
    threads = [
        threading.Thread(target=lambda: results.extend(provider.send([mail()] * 10)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    provider.close()
    assert {result.verdict for result in results} == {"sent"}
    assert len({result.provider_message_id for result in results}) == 40
    assert double.connections <= 4


def test_moto_accepts_what_the_ses_provider_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    with moto("example.com") as url, serve(SesDouble(upstream=url)) as double:
        for name, value in environ(double.url).items():
            monkeypatch.setenv(name, value)
        provider = SesProvider(REGION, endpoint_url=double.url)
        simple, raw, refused = provider.send(
            [mail(), mail(attachments=[PDF]), mail(from_email="a@unknown.example")]
        )
        provider.close()
    assert (simple.verdict, raw.verdict, refused.verdict) == ("sent", "sent", "config")
    assert [each["id"] for each in double.accepted()] == [
        simple.provider_message_id,
        raw.provider_message_id,
    ]


@pytest.mark.parametrize("status", [None, 200, 400, 500, 999])
@pytest.mark.parametrize("code", [None, "", "x" * 1000, "\x00", "BotoCoreError"])
def test_classifying_any_ses_answer_never_raises(status: int | None, code: str | None) -> None:
    assert classify(SES_RULES, status=status, code=code, text="\ud800(*").meaning
