"""What the worker logs of errors: where they came from, and nothing of what they say."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from mailgres import logs
from mailgres.model import ClaimedEmail, Message, Outcome, Result, Verdict
from mailgres.safe_errors import where
from mailgres.sender import Renderer
from mailgres.settings import Settings
from support.queue import RECIPIENT, Clock
from worker.double import Double
from worker.harness import WorkerHarness

SECRET = "the content"


def quote(recipient: str) -> None:
    """Fail as libraries do, one error after another, each quoting what it was given."""
    known: dict[str, None] = {}
    try:
        known[recipient]
    except KeyError as error:
        raise ValueError(f"550 <{recipient}>: {SECRET}") from error


class Chatty(Double):
    """A provider whose code fails, and says of whom."""

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        quote(messages[0].email.recipient_email)
        raise AssertionError


class ChattyRenderer(Renderer):
    """A bug of our own that does the same."""

    def render(self, emails: Sequence[ClaimedEmail]) -> list[Message | Outcome]:
        quote(emails[0].recipient_email)
        raise AssertionError


def reported(caplog: pytest.LogCaptureFixture) -> str:
    """All that a log could show of what was logged, however it is configured."""
    form = logging.Formatter()
    lines = [f"{form.format(one)} {one.__dict__}" for one in caplog.records]
    assert all(one.exc_info is None for one in caplog.records)
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("provider", "renderer", "said"),
    [
        (Chatty, Renderer, "a provider's code failed"),
        (Double, ChattyRenderer, "emails not prepared"),
    ],
    ids=["provider", "ours"],
)
def test_log_lines_quote_nothing_of_the_email(
    harness: WorkerHarness,
    caplog: pytest.LogCaptureFixture,
    provider: type[Double],
    renderer: type[Renderer],
    said: str,
) -> None:
    harness.use_double()
    email = harness.enqueue()
    with caplog.at_level(logging.DEBUG):
        assert harness.drain(provider(harness.ledger), renderer=renderer).retried == 1
    log = reported(caplog)
    assert f"{said}: ValueError at " in log
    assert "worker/test_log.py:" in log
    assert " quote, after KeyError at " in log
    for secret in (RECIPIENT, SECRET, "550 <"):
        assert secret not in log
    row = harness.email(email)
    assert SECRET not in row.error_message
    assert RECIPIENT not in row.error_message
    # The place is kept for operators, who see it in the dead letter, too.
    assert row.error_detail.startswith("ValueError at ")
    assert " quote, after KeyError at " in row.error_detail
    for secret in (RECIPIENT, SECRET, "550 <"):
        assert secret not in row.error_detail


class Refusing(Double):
    """A provider that says of whom it will not hear, and of what."""

    verdict: Verdict = "permanent"

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        (message,) = messages
        text = f"no mailbox {message.email.recipient_email} for '{message.subject}', {SECRET}"
        return [Result(self.verdict, code="no_mailbox", message=text, detail=text)]


class Later(Refusing):
    verdict = "transient"


KEYS = {
    "jobId",
    "companyId",
    "attempt",
    "maxAttempts",
    "errorCode",
    "errorReason",
    "nextRetryDelay",
    "isRetryable",
}
"""What the line of a failed try tells, besides level, message and timestamp."""


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        (
            Refusing,
            {
                "level": "error",
                "event": "JobFailed",
                "isRetryable": False,
                "nextRetryDelay": None,
                "errorClass": "permanent",
                "deadReason": "permanent",
            },
        ),
        (
            Later,
            {
                "level": "warning",
                "event": "JobRetried",
                "isRetryable": True,
                "nextRetryDelay": 60_000,
                "errorClass": "transient",
                "deadReason": None,
            },
        ),
    ],
    ids=["dead", "retried"],
)
def test_a_failed_attempt_is_logged_once(
    harness: WorkerHarness,
    caplog: pytest.LogCaptureFixture,
    provider: type[Double],
    expected: dict[str, Any],
) -> None:
    harness.use_double()
    Clock(harness.conn)
    email = harness.enqueue(tenant_id="acme", payload={"product": SECRET})
    with caplog.at_level(logging.INFO):
        harness.drain(provider(harness.ledger))
    (record,) = [one for one in caplog.records if hasattr(one, "jobId")]
    line = json.loads(logs.formatter(Settings(log_format="json"), terminal=False).format(record))
    assert {"level", "message", "timestamp"} | KEYS <= line.keys()
    same = {
        "jobId": str(email),
        "companyId": "acme",
        "attempt": 1,
        "maxAttempts": 4,
        "errorCode": "no_mailbox",
        "errorReason": "no mailbox <address> for '<content>', <content>",
        "action": "finish",
        "provider": "double",
        "template": "welcome_user",
    }
    assert {key: line[key] for key in (*same, *expected)} == same | expected
    row = harness.email(email)
    assert row.error_message == line["errorReason"]
    assert SECRET in row.error_detail  # for operators, as it came


def test_an_error_that_was_not_raised_is_logged_without_a_place() -> None:
    assert where(ValueError("x")) == "ValueError at no place"


def test_a_long_chain_of_errors_is_logged_on_one_line() -> None:
    """However long the chain and deep the stack, it stays a line."""

    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        raise ValueError("x" * 1000)

    def chain(links: int) -> None:
        try:
            deep(50)
        except ValueError:
            if links:
                chain(links - 1)
            raise

    with pytest.raises(ValueError, match="xxx") as caught:
        chain(20)
    said = where(caught.value)
    assert len(said) < 5000
    assert "\n" not in said
    assert "xxx" not in said
