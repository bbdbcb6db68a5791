"""Limits, credentials, several accounts at once; and the double itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import resend

from doubles.resend import KEY, Fault, ResendDouble, in_a_process, serve
from doubles.resend_faults import named
from mailgres.errors import MailgresError
from mailgres.model import Limits, Message, Result
from mailgres.providers.resend.provider import ResendProvider
from providers.mails import batch, mail

Open = Callable[..., ResendProvider]
NOW = datetime(2026, 11, 16, 22, 30, tzinfo=UTC)
LATENCY_SECONDS = 2.0
"""Seconds of a call, so that a second one starts meanwhile also on a busy machine."""


def one(provider: ResendProvider, message: Message | None = None) -> Result:
    [result] = provider.send([message or mail()])
    return result


# Limits


def test_limits_are_learned_from_the_headers(
    provider: ResendProvider, double: ResendDouble
) -> None:
    assert provider.limits() is None
    double.set(rate=7, daily=100)
    one(provider)
    assert provider.limits() == Limits(calls_per_second=7, sent_today=1)


def test_the_rate_limit_of_resend_is_learned_from_headers(
    provider: ResendProvider, double: ResendDouble
) -> None:
    double.set(rate=1)
    results = [one(provider) for _ in range(3)]
    refused = [result for result in results if result.verdict != "sent"]
    assert refused
    for result in refused:
        assert (result.verdict, result.code) == ("rate", "rate_limit_exceeded")
        assert result.retry_after == timedelta(seconds=1)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "17"}, timedelta(seconds=17)),
        ({"Retry-After": "Mon, 16 Nov 2026 22:31:00 GMT"}, timedelta(minutes=1)),
        ({"retry-after": "soon"}, None),
    ],
)
def test_resend_obeys_retry_after(
    provider: ResendProvider,
    double: ResendDouble,
    headers: dict[str, str],
    wait: timedelta | None,
) -> None:
    double.add_faults(Fault(status=429, name="rate_limit_exceeded", headers=headers))
    assert one(provider).retry_after == wait


@pytest.mark.parametrize(
    ("name", "headers", "wait"),
    [
        ("daily_quota_exceeded", {}, timedelta(hours=1)),
        ("daily_quota_exceeded", {"retry-after": "1"}, timedelta(hours=1)),
        ("daily_quota_exceeded", {"retry-after": "7200"}, timedelta(hours=2)),
        ("monthly_quota_exceeded", {}, datetime(2026, 12, 1, tzinfo=UTC) - NOW),
    ],
)
def test_resend_quotas_wait_for_their_reset(
    provider: ResendProvider,
    double: ResendDouble,
    name: str,
    headers: dict[str, str],
    wait: timedelta,
) -> None:
    double.add_faults(Fault(status=429, name=name, headers=headers))
    result = one(provider)
    assert (result.verdict, result.retry_after) == ("quota", wait)


def test_the_account_knows_when_its_quota_is_reset(opened: Open, double: ResendDouble) -> None:
    provider = opened(now=lambda: datetime.now(UTC))
    double.set(daily=1, usage=True)
    assert one(provider).verdict == "sent"
    refused = one(provider)
    assert refused.verdict == "quota"
    assert refused.retry_after is not None
    assert abs(refused.retry_after - timedelta(days=1)) < timedelta(seconds=10)


# Credentials


@pytest.mark.parametrize("usage", [True, False])
@pytest.mark.parametrize("sending_only", [[], [KEY]], ids=["full access", "sending only"])
def test_checking_a_valid_resend_key_succeeds(
    provider: ResendProvider, double: ResendDouble, *, usage: bool, sending_only: list[str]
) -> None:
    double.set(usage=usage, sending_only=sending_only, daily=100)
    assert provider.check() == Result("sent")
    assert double.accepted() == []
    if usage:
        assert provider.limits() == Limits(
            calls_per_second=10, daily=100, monthly=3000, sent_today=0
        )


@pytest.mark.parametrize("answer", ["invalid_api_key", "validation_error"])
def test_a_wrong_key_is_a_fault_of_the_account(
    opened: Open, double: ResendDouble, answer: str
) -> None:
    double.set(wrong_key=answer)
    provider = opened("re_wrong")
    for result in (provider.check(), one(provider), *provider.send(batch(2))):
        assert (result.verdict, result.account) == ("config", True)
        assert "re_wrong" not in f"{result.message}{result.detail}"


def test_checking_an_unreachable_resend_reports_no_connection(opened: Open) -> None:
    assert opened(url="http://127.0.0.1:1").check().code == "no_connection"


@pytest.mark.parametrize("key", ["", " ", "re_a\r\nX-Evil: 1", "re_ü", "re a"])
def test_a_malformed_resend_key_is_refused(opened: Open, key: str) -> None:
    with pytest.raises(MailgresError) as caught:
        opened(key)
    assert "resend.com/api-keys" in (caught.value.hint or "")
    assert key.strip() == "" or key not in str(caught.value)


def test_a_netrc_does_not_replace_the_key(
    opened: Open, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert one(opened()).verdict == "sent"


# Several accounts, many threads, one SDK


def test_resend_accounts_in_threads_use_their_own_keys(double: ResendDouble) -> None:
    keys = [f"re_tenant_{number}" for number in range(4)]
    double.set(keys=keys)
    with serve(ResendDouble(keys=["re_other"])) as other:
        accounts = {key: ResendProvider(key, double.url, timeout=10.0) for key in keys}
        accounts["re_other"] = ResendProvider("re_other", other.url, timeout=10.0)
        sent: dict[str, str] = {}
        ready = threading.Barrier(10)

        def work(number: int) -> list[str]:
            key = list(accounts)[number % len(accounts)]
            ready.wait()
            for turn in range(20):
                messages = batch(2) if turn % 2 else [mail()]
                for message, result in zip(messages, accounts[key].send(messages), strict=True):
                    assert result.verdict == "sent", result
                    sent[str(message.email.id)] = key
            return []

        with ThreadPoolExecutor(10) as pool:
            list(pool.map(work, range(10)))
        accepted = double.accepted() + other.accepted()
        for provider in accounts.values():
            provider.close()
    assert {each["mailgres_id"]: each["api_key"] for each in accepted} == sent
    assert {each["api_key"] for each in other.accepted()} == {"re_other"}


def test_the_application_keeps_the_sdk_for_itself(
    provider: ResendProvider, double: ResendDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []

    class Own(resend.HTTPClient):
        def request(self, *arguments: Any, **_: Any) -> Any:
            url, headers = arguments[1:3]
            seen.append((url, headers["Authorization"]))
            return b'{"id": "theirs"}', 200, {"content-type": "application/json"}

    monkeypatch.setattr(resend, "default_http_client", Own())
    monkeypatch.setattr(resend, "api_key", "re_theirs")
    assert one(provider).verdict == "sent"
    reported = resend.Emails.send({"from": "a@b.example", "to": "c@d.example", "subject": "x"})
    assert reported["id"] == "theirs"
    assert seen == [(f"{resend.api_url}/emails", "Bearer re_theirs")]
    assert resend.api_key == "re_theirs"
    assert double.accepted()[0]["api_key"] == KEY


def test_an_unknown_fault_is_warned_of_once(
    provider: ResendProvider, double: ResendDouble, caplog: pytest.LogCaptureFixture
) -> None:
    double.add_faults(Fault(status=418, name="teapot", times=2), named(418, "kettle"))
    with caplog.at_level(logging.WARNING, logger="mailgres.providers.resend.provider"):
        for _ in range(3):
            assert one(provider).verdict == "transient"
    assert [record.__dict__["code"] for record in caplog.records] == ["teapot", "kettle"]


# The double


def test_resend_refuses_two_calls_with_one_idempotency_key_at_once(
    opened: Open, double: ResendDouble
) -> None:
    double.set(latency=LATENCY_SECONDS)
    provider, message = opened(), mail()
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: one(provider, message), range(2)))
    assert sorted(result.verdict for result in results) == ["sent", "transient"]
    assert double.summary()["accepted"] == 1


def test_a_key_is_forgotten_after_a_day(provider: ResendProvider, double: ResendDouble) -> None:
    message = mail()
    one(provider, message)
    double.set(ahead=23.9 * 3600)
    one(provider, message)
    assert double.summary()["doubles"] == {}
    double.set(ahead=24.1 * 3600)
    one(provider, message)
    assert double.summary()["doubles"] == {str(message.email.id): 2}


def test_a_strict_batch_is_all_or_nothing(double: ResendDouble) -> None:
    good = {"from": "a@b.example", "to": ["c@d.example"], "subject": "x", "text": "x"}
    headers = {"authorization": f"Bearer {KEY}"}
    body = b"[%s, {}]" % str(good).replace("'", '"').encode()
    assert double.answer("POST", "/emails/batch", headers, body).status == 422
    assert double.accepted() == []


def test_the_resend_double_can_run_in_another_process() -> None:
    with in_a_process(daily=2) as double:
        provider = ResendProvider(KEY, double.url, timeout=10.0)
        double.add_faults(Fault(status=500, name="application_error"))
        verdicts = [one(provider).verdict for _ in range(4)]
        provider.close()
        assert verdicts == ["ambiguous", "sent", "sent", "quota"]
        assert double.summary()["accepted"] == 2
        assert len(double.accepted()) == 2
        assert double.summary()["statuses"] == {"500": 1, "200": 2, "429": 1, "404": 1}
