"""Every fault of Resend is of its class, and nothing that comes back makes us stumble."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailgres.model import Limits, Result
from mailgres.providers.faults import UNKNOWN, classify
from mailgres.providers.resend.batch import results_of
from mailgres.providers.resend.faults import RESEND_RULES
from mailgres.providers.resend.http import Answer
from mailgres.providers.resend.limits import limits_in, next_reset, usage_limits, usage_reset
from mailgres.providers.resend.provider import ResendProvider
from mailgres.providers.tags import tags_of
from providers.mails import batch, mail

NOW = datetime(2026, 11, 16, 22, 30, tzinfo=UTC)

CLASSES = {
    "rate": [("rate_limit_exceeded", 429)],
    "quota": [("daily_quota_exceeded", 429), ("monthly_quota_exceeded", 429)],
    "config": [
        ("missing_api_key", 401),
        ("restricted_api_key", 401),
        ("restricted_api_key", 403),
        ("invalid_api_key", 403),
        ("suspended_api_key", 403),
        ("invalid_permission", 403),
        ("validation_error", 403),
        ("not_found", 404),
        ("method_not_allowed", 405),
        ("invalid_idempotency_key", 400),
        ("security_error", 451),
    ],
    "permanent": [
        ("validation_error", 400),
        ("validation_error", 422),
        ("missing_required_field", 422),
        ("invalid_from_address", 422),
        ("invalid_attachment", 422),
        ("invalid_parameter", 422),
    ],
    "transient": [("concurrent_idempotent_requests", 409)],
    "ambiguous": [
        ("application_error", 500),
        ("internal_server_error", 500),
        ("anything", 500),
        ("anything", 502),
        ("anything", 503),
        ("anything", 599),
    ],
    "uncertain": [("invalid_idempotent_request", 409)],
}
BY_SENDER = {("validation_error", 403), ("security_error", 451)}


@pytest.mark.parametrize(
    ("verdict", "code", "status"),
    [(verdict, *fault) for verdict, faults in CLASSES.items() for fault in faults],
)
def test_every_documented_resend_error_has_its_class(verdict: str, code: str, status: int) -> None:
    rule = classify(RESEND_RULES, status=status, code=code, text="words")
    assert rule is not UNKNOWN
    assert rule.verdict == verdict
    if verdict == "config":
        assert rule.scope == ("sender" if (code, status) in BY_SENDER else "account")
    assert rule.pinned == (status == 409)


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_wrong_key_never_kills_an_email(status: int) -> None:
    rule = classify(RESEND_RULES, status=status, code="validation_error", text="API key is invalid")
    assert (rule.verdict, rule.scope) == ("config", "account")


def test_an_unverified_domain_in_a_resend_batch_is_a_fault_of_the_sender() -> None:
    text = "The example.com domain is not verified. Please, add and verify your domain"
    rule = classify(RESEND_RULES, status=422, code="validation_error", text=text)
    assert (rule.verdict, rule.scope) == ("config", "sender")


@pytest.mark.parametrize("status", [400, 402, 409, 418, 422])
def test_an_unknown_error_name_of_resend_has_no_rule(status: int) -> None:
    assert classify(RESEND_RULES, status=status, code="brand_new") is UNKNOWN


def test_every_rule_has_a_meaning_that_is_a_sentence() -> None:
    for rule in RESEND_RULES:
        assert rule.meaning[0].isupper()
        assert rule.meaning.endswith(".")


def test_every_rule_for_resend_errors_can_be_reached() -> None:
    for rule in RESEND_RULES:
        status = rule.status.start if isinstance(rule.status, range) else rule.status
        text = "API key: the domain is not verified" if rule.text else ""
        found = classify(RESEND_RULES, status=status, code=rule.code, text=text)
        if rule.text is None or "API key" in rule.text:
            assert found == rule


@given(
    status=st.none() | st.integers(),
    code=st.none() | st.text(),
    text=st.text(),
)
def test_resend_classification_never_raises(
    status: int | None, code: str | None, text: str
) -> None:
    assert classify(RESEND_RULES, status=status, code=code, text=text).verdict


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


class Garbage(ResendProvider):
    """A provider whose account answers what the test says."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("re_garbage", "http://127.0.0.1:1", now=lambda: NOW)
        self._account.call = lambda *_: answer  # type: ignore[method-assign]


@given(
    status=st.sampled_from([200, 201, 204, 302, 400, 403, 409, 422, 429, 451, 500, 503])
    | st.integers(100, 999),
    body=st.binary()
    | st.builds(lambda reported: json.dumps(reported).encode(), JSON)
    | st.builds(
        lambda reported: json.dumps(reported).encode(),
        st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(
                ("id", "data", "errors", "name", "message", "statusCode", "emails"), JSON
            ),
        ),
    )
    | st.just(b"[" * 100_000),
    headers=st.dictionaries(
        st.sampled_from(
            ["content-type", "retry-after", "ratelimit-limit", "ratelimit-policy", "x"]
        ),
        st.text() | st.just("application/json"),
    ),
    count=st.integers(1, 3),
)
def test_whatever_comes_back_is_a_result(
    status: int, body: bytes, headers: dict[str, str], count: int
) -> None:
    provider = Garbage(Answer(status, {"content-type": "application/json"} | headers, body))
    messages = batch(count) if count > 1 else [mail()]
    for result in (*provider.send(messages), provider.check()):
        assert result.verdict in {*CLASSES, "sent"}
        if result.verdict != "sent":
            assert result.code
            assert result.message
        for text in (result.provider_message_id, result.code, result.message, result.detail):
            assert text is None or "\0" not in text
            assert text is None or text.encode()
        assert result.retry_after is None or result.retry_after >= timedelta(0)
    assert len(provider.send(messages)) == count


def refused(words: str) -> Result:
    return Result("permanent", message=words)


@given(
    reported=st.dictionaries(st.sampled_from(["data", "errors", "x"]), JSON),
    count=st.integers(1, 5),
)
def test_the_answer_to_a_batch_may_be_anything(reported: dict[str, Any], count: int) -> None:
    results = results_of(reported, count, refused)
    assert results is None or len(results) == count


@given(good=st.lists(st.booleans(), min_size=1, max_size=100), data=st.data())
def test_the_results_of_a_resend_batch_are_matched_to_their_messages(
    good: list[bool], data: st.DataObject
) -> None:
    errors = [{"index": n, "message": f"m{n}"} for n, fine in enumerate(good) if not fine]
    reported: dict[str, Any] = {
        "data": [{"id": f"id{n}"} for n, fine in enumerate(good) if fine],
        "errors": data.draw(st.permutations(errors)),
    }
    results = results_of(reported, len(good), refused)
    assert results == [
        Result("sent", f"id{n}") if fine else refused(f"m{n}") for n, fine in enumerate(good)
    ]
    assert results_of(reported, len(good) + 1, refused) is None
    if reported["data"]:
        assert results_of(reported | {"data": reported["data"][1:]}, len(good), refused) is None


@pytest.mark.parametrize(
    "errors",
    [
        [{"index": 2}],
        [{"index": -1}],
        [{"index": "0"}],
        [{"index": True}],
        [{"index": 0}, {"index": 0}],
        ["x"],
        {"index": 0},
    ],
)
def test_contradicting_batch_answers_of_resend_are_not_trusted(errors: Any) -> None:
    for ids in ([], [{"id": "a"}], [{"id": "a"}, {"id": "b"}]):
        assert results_of({"data": ids, "errors": errors}, 2, refused) is None


@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        ({}, None),
        ({"ratelimit-limit": "2", "ratelimit-reset": "1"}, Limits(calls_per_second=2)),
        ({"ratelimit-limit": "10", "ratelimit-reset": "37"}, Limits(calls_per_second=10)),
        (
            {"ratelimit-limit": "60", "ratelimit-policy": "60;w=60"},
            Limits(calls_per_second=1),
        ),
        ({"ratelimit-limit": "0"}, None),
        ({"ratelimit-limit": "many"}, None),
        ({"x-resend-daily-quota": "80"}, Limits(sent_today=80)),
    ],
)
def test_rate_limit_headers_of_resend_are_read(
    headers: dict[str, str], limits: Limits | None
) -> None:
    assert limits_in(headers, None) == limits


def test_limits_that_an_answer_omits_are_kept() -> None:
    known = Limits(calls_per_second=5, daily=100, sent_today=3)
    assert limits_in({}, known) == known
    assert limits_in({"ratelimit-limit": "2"}, known) == Limits(
        calls_per_second=2, daily=100, sent_today=3
    )


@given(reported=JSON, code=st.text())
def test_reading_the_usage_of_resend_never_raises(reported: Any, code: str) -> None:
    usage = {
        "emails": {"daily": reported, "monthly": {"resets_at": reported}},
        "rate_limit": reported,
    }
    usage_limits(usage)
    usage_reset(usage, code, NOW)
    usage_limits({"emails": reported})
    usage_reset({"emails": reported}, code, NOW)


@pytest.mark.parametrize(
    ("resets_at", "expected"),
    [
        ("2026-11-17T08:00:00.000Z", timedelta(hours=9, minutes=30)),
        ("2026-11-17T08:00:00", timedelta(hours=9, minutes=30)),
        ("2026-11-16T08:00:00Z", None),
        ("2027-11-17T08:00:00Z", None),
        ("tomorrow", None),
        (None, None),
    ],
)
def test_the_reset_time_of_a_resend_quota_is_read(
    resets_at: str | None, expected: timedelta | None
) -> None:
    usage = {"emails": {"daily": {"resets_at": resets_at}}}
    assert usage_reset(usage, "daily_quota_exceeded", NOW) == expected


@given(now=st.datetimes(datetime(2020, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_a_quota_always_has_a_next_reset(now: datetime) -> None:
    daily = next_reset("daily_quota_exceeded", now)
    monthly = next_reset("monthly_quota_exceeded", now)
    assert timedelta(0) < daily <= timedelta(hours=1)
    assert timedelta(0) < monthly <= timedelta(days=31)
    reset = now + monthly
    assert (reset.day, reset.hour, reset.minute) == (1, 0, 0)


@given(given_tags=st.dictionaries(st.text(), st.text()))
def test_tags_sent_to_resend_are_always_valid(given_tags: dict[str, str]) -> None:
    email = mail(tags=given_tags).email
    made = tags_of(email)
    assert made[0] == ("mailgres_id", str(email.id))
    assert len({name for name, _ in made}) == len(made)
    for each in made:
        for text in each:
            assert 1 <= len(text) <= 256
            assert text.isascii()
            assert all(char.isalnum() or char in "_-" for char in text)
