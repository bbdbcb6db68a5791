"""Bodies of webhooks: large, without a length, in pieces, or cut off; for every endpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doubles import sns as sns_double
from doubles.sns import TOPIC, Sns
from e2e.harness import E2eHarness
from mailgres.webhooks import samples
from service.harness import Answer, Site, request, site
from service.webhook_calls import OWN, RESEND, headers, unmatched

KEY = "s3cr3t-of-the-url-of-ses"
PATHS = ("/webhooks/resend", f"/webhooks/ses/{KEY}", "/webhooks/events")
TEN_MEGABYTES = 10 * 1024 * 1024


@pytest.fixture
def sns(tmp_path: Path) -> Iterator[Sns]:
    with sns_double.serve(Sns(tmp_path)) as double:
        yield double


@pytest.fixture
def receiver(harness: E2eHarness, sns: Sns) -> Iterator[Site]:
    """A service with every webhook."""
    harness.use("capture")
    harness.variables |= sns.environ()
    secrets = {
        "resend_webhook_secret": RESEND,
        "ses_webhook_secret": KEY,
        "ses_webhook_topics": TOPIC,
        "events_secret": OWN,
    }
    with site(harness, **secrets) as running:
        yield running


def signed(path: str, sns: Sns) -> tuple[list[str], bytes]:
    """The headers and the body of a call that is accepted."""
    if "ses" in path.split("/"):
        event: dict[str, Any] = samples.ses("Delivery", samples.About())
        return [], sns.notification(json.dumps(event))
    if path.endswith("resend"):
        body = json.dumps(samples.resend("email.delivered", samples.About())).encode()
        return headers(body), body
    body = json.dumps(samples.own("capture", samples.About())).encode()
    return headers(body, OWN, prefix="webhook"), body


def chunks(body: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        part = body[start : start + size]
        yield b"%x\r\n%s\r\n" % (len(part), part)


def in_chunks(running: Site, path: str, given: list[str], body: bytes, size: int) -> Answer:
    head = request("POST", path, "Transfer-Encoding: chunked", *given)
    head = head.replace(b"Content-Length: 0\r\n", b"")
    return running.raw(head, *chunks(body, size), b"0\r\n\r\n")


def test_a_body_of_ten_megabytes_is_refused_by_every_webhook(
    receiver: Site, harness: E2eHarness, sns: Sns
) -> None:
    for path in PATHS:
        given, body = signed(path, sns)
        large = body.ljust(TEN_MEGABYTES)
        answer = receiver.ask("POST", path, *given, body=large)
        assert (answer.status, answer.json["error"]) == (413, "the body is too large"), path
        assert in_chunks(receiver, path, given, large, 65536).status == 413, path
    assert unmatched(harness) == []


def test_a_body_without_a_length_is_accepted_by_every_webhook(
    receiver: Site, harness: E2eHarness, sns: Sns
) -> None:
    for path in PATHS:
        given, body = signed(path, sns)
        answer = in_chunks(receiver, path, given, body, 7)
        assert (answer.status, answer.json) == (200, {"unmatched": 1}), path
    assert len(unmatched(harness)) == len(PATHS)


def test_a_body_that_is_cut_off_is_not_recorded_by_any_webhook(
    receiver: Site, harness: E2eHarness, sns: Sns
) -> None:
    for path in PATHS:
        given, body = signed(path, sns)
        whole = request("POST", path, *given, body=body)
        with receiver.open() as connection:
            receiver.send(connection, whole[:-1])
        assert receiver.get("/healthz").status == 200
        assert unmatched(harness) == [], path
        assert receiver.raw(whole).status == 200, path
        harness.run("DELETE FROM mailgres.unmatched_events")
