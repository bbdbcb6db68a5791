"""Texts from outside, however long: cut before anything reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from doubles import resend as resend_double
from doubles.resend import KEY, ResendDouble
from doubles.smtp import Fault, SmtpDouble, serve
from mailgres.model import Message, Result
from mailgres.providers import faults
from mailgres.providers.base import Capabilities
from mailgres.providers.resend.provider import ResendProvider
from mailgres.providers.retry_after import retry_after
from mailgres.providers.smtp.provider import SmtpProvider
from mailgres.providers.smtp.session import Session
from mailgres.sender.send import call
from providers.mails import mail

HUGE = 500_000
MOST = {"code": 100, "message": 2000, "detail": 4000}


@pytest.fixture
def smtp() -> Iterator[SmtpDouble]:
    with serve(SmtpDouble()) as running:
        yield running


def reply(code: int, size: int = HUGE) -> str:
    """A reply of many lines."""
    lines = size // 500
    return "\r\n".join([f"{code}-5.1.1 {'x' * 490}"] * lines + [f"{code} 5.1.1 end"])


def check(result: Result) -> None:
    for name, most in MOST.items():
        assert len(getattr(result, name) or "") <= most, name


@pytest.mark.parametrize("step", ["rcpt", "mail", "data", "end"])
def test_a_long_reply_of_an_smtp_server_is_cut(smtp: SmtpDouble, step: Any) -> None:
    """Its code still decides."""
    provider = SmtpProvider(smtp.url, timeout=30)
    smtp.add_faults(Fault(step, reply(550)))
    (result,) = provider.send([mail()])
    check(result)
    assert (result.verdict, result.code) == ("permanent", "5.1.1")
    provider.close()


def test_a_size_of_thousands_of_digits_is_no_limit() -> None:
    announced: Any = SimpleNamespace(esmtp_features={"size": "9" * 7000})
    assert Session(announced).largest == 0


def test_a_long_answer_of_resend_is_cut_before_it_is_classified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    original = faults.classify

    def watch(rules: Any, **reported: Any) -> Any:
        seen.append(max(len(reported["text"]), len(reported["code"] or "")))
        return original(rules, **reported)

    monkeypatch.setattr("mailgres.providers.resend.provider.classify", watch)
    with resend_double.serve(ResendDouble()) as double:
        provider = ResendProvider(KEY, double.url)
        for name, words in (("x" * HUGE, "no"), ("validation_error", "a " * HUGE)):
            double.add_faults(resend_double.Fault(422, name, words))
            (result,) = provider.send([mail()])
            check(result)
        provider.close()
    assert max(seen) <= MOST["message"]


class Talker:
    """A custom provider with long answers."""

    name = kind = "talker"
    capabilities = Capabilities()

    def __init__(self, result: Result) -> None:
        self.result = result

    def send(self, messages: list[Message]) -> list[Result]:
        return [self.result] * len(messages)


def test_whatever_a_provider_says_is_cut() -> None:
    long = Result("transient", code="x" * HUGE, message="a@" * HUGE, detail="y" * HUGE)
    talker: Any = Talker(long)
    (outcome,) = call(talker, [mail()])
    check(outcome.result)
    talker.result = replace(long, message="a" * HUGE)
    check(call(talker, [mail()])[0].result)


def test_a_long_retry_after_means_nothing() -> None:

    assert retry_after("Mon, " * HUGE, datetime.now(UTC)) is None
