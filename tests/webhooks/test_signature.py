"""Signatures of Standard Webhooks: those of Svix's own library are accepted, and no others."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
import resend
from hypothesis import given
from hypothesis import strategies as st
from svix.webhooks import Webhook as SvixWebhook

from mailgres.webhooks import signature
from mailgres.webhooks.signature import BadSignature

ONE = "whsec_" + base64.b64encode(b"the first secret of the tests").decode()
TWO = "whsec_" + base64.b64encode(b"the second secret, for a while").decode()
BODY = b'{"type": "email.sent", "data": {"subject": "\xc3\xa9t\xc3\xa9"}}'


def svix(body: bytes, secret: str = ONE, ago: int = 0, name: str = "msg_1") -> dict[str, str]:
    """The headers that Svix's own library makes."""
    moment = datetime.now(UTC) - timedelta(seconds=ago)
    return {
        "svix-id": name,
        "svix-timestamp": str(int(moment.timestamp())),
        "svix-signature": SvixWebhook(secret).sign(name, moment, body.decode()),
    }


def test_a_webhook_that_svix_signed_is_accepted() -> None:
    assert signature.verify(BODY, svix(BODY), [ONE], "svix") == "msg_1"


def test_during_a_rotation_either_webhook_secret_is_accepted() -> None:
    assert signature.verify(BODY, svix(BODY), [TWO, ONE], "svix") == "msg_1"
    assert signature.verify(BODY, svix(BODY, TWO), [TWO, ONE], "svix") == "msg_1"
    both = svix(BODY)
    both["svix-signature"] = (
        f"v1a,AAAA {svix(BODY, TWO)['svix-signature']} {both['svix-signature']}"
    )
    assert signature.verify(BODY, both, [ONE], "svix") == "msg_1"


def test_the_webhook_verifier_of_resend_gives_the_same_answers() -> None:
    headers = signature.sign(BODY, ONE, "msg_7", "svix")
    names = {name.removeprefix("svix-"): value for name, value in headers.items()}
    options = {"payload": BODY.decode(), "headers": names, "webhook_secret": ONE}
    assert resend.Webhooks.verify(options) == json.loads(BODY)  # type: ignore[arg-type]
    assert signature.verify(BODY, headers, [ONE], "svix") == "msg_7"


@pytest.mark.parametrize("ago", [-290, 0, 290])
def test_a_webhook_signature_five_minutes_off_is_accepted(ago: int) -> None:
    assert signature.verify(BODY, svix(BODY, ago=ago), [ONE], "svix")


@pytest.mark.parametrize(("ago", "why"), [(310, "too old"), (-310, "too new")])
def test_an_old_or_future_webhook_signature_is_refused(ago: int, why: str) -> None:
    with pytest.raises(BadSignature, match=why):
        signature.verify(BODY, svix(BODY, ago=ago), [ONE], "svix")


def test_a_webhook_signature_of_another_secret_or_body_is_refused() -> None:
    with pytest.raises(BadSignature, match="No matching signature"):
        signature.verify(BODY, svix(BODY, TWO), [ONE], "svix")
    with pytest.raises(BadSignature, match="No matching signature"):
        signature.verify(BODY + b" ", svix(BODY), [ONE], "svix")
    with pytest.raises(BadSignature, match="no secret"):
        signature.verify(BODY, svix(BODY), [], "svix")


@pytest.mark.parametrize("missing", ["svix-id", "svix-timestamp", "svix-signature"])
def test_a_webhook_without_a_signature_header_is_refused(missing: str) -> None:
    headers = svix(BODY)
    del headers[missing]
    with pytest.raises(BadSignature, match="a header is missing"):
        signature.verify(BODY, headers, [ONE], "svix")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("svix-signature", "v1"),
        ("svix-signature", "v1,!!!"),
        ("svix-signature", "v1,é"),
        ("svix-signature", "a,b,c"),
        ("svix-signature", ",,,, ,"),
        ("svix-timestamp", "now"),
        ("svix-timestamp", "nan"),
        ("svix-timestamp", "9" * 400),
        ("svix-timestamp", "-1"),
        ("svix-id", "x" * 300),
        ("svix-id", "a\x00b"),
    ],
)
def test_malformed_webhook_signature_headers_are_refused(name: str, value: str) -> None:
    with pytest.raises(BadSignature):
        signature.verify(BODY, {**svix(BODY), name: value}, [ONE], "svix")


def test_a_webhook_body_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(BadSignature):
        signature.verify(b"\xff\xfe", svix(BODY), [ONE], "svix")


@given(st.text(), st.text(), st.text(), st.binary())
def test_checking_a_webhook_signature_never_crashes_whatever_the_headers(
    a: str, b: str, c: str, body: bytes
) -> None:
    headers = {"webhook-id": a, "webhook-timestamp": b, "webhook-signature": c}
    with pytest.raises(BadSignature):
        signature.verify(body, headers, [ONE])
