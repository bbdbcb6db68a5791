"""What the worker logs of errors: where they came from, and nothing of what they say."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from mailgres.model import Email, Message, Outcome, Result
from mailgres.sender import Renderer
from mailgres.trace import where
from support.queue import RECIPIENT
from worker.bench import Bench
from worker.double import Double

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

    def render(self, emails: Sequence[Email]) -> list[Message | Outcome]:
        quote(emails[0].recipient_email)
        raise AssertionError


def told(caplog: pytest.LogCaptureFixture) -> str:
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
def test_nothing_of_the_email(
    bench: Bench,
    caplog: pytest.LogCaptureFixture,
    provider: type[Double],
    renderer: type[Renderer],
    said: str,
) -> None:
    bench.use_double()
    email = bench.enqueue()
    with caplog.at_level(logging.DEBUG):
        assert bench.drain(provider(bench.ledger), renderer=renderer).retried == 1
    log = told(caplog)
    assert f"{said}: ValueError at " in log
    assert "worker/test_log.py:" in log
    assert " quote, after KeyError at " in log
    for secret in (RECIPIENT, SECRET, "550"):
        assert secret not in log
    row = bench.email(email)
    assert SECRET not in row.error_message
    assert RECIPIENT not in row.error_message
    # The place is kept for operators, who see it in the dead letter, too.
    assert row.error_detail.startswith("ValueError at ")
    assert " quote, after KeyError at " in row.error_detail
    for secret in (RECIPIENT, SECRET, "550"):
        assert secret not in row.error_detail


class Refusing(Double):
    """A provider that says of whom it will not hear."""

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        text = f"no such mailbox {messages[0].email.recipient_email}"
        return [Result("permanent", code="no_mailbox", message=text, detail=text)] * len(messages)


def test_a_dead_letter_is_told_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.use_double()
    email = bench.enqueue(tenant_id="acme", payload={"name": SECRET})
    with caplog.at_level(logging.INFO):
        assert bench.drain(Refusing(bench.ledger)).dead == 1
    (told_,) = [one for one in caplog.records if getattr(one, "event", "") == "JobFailed"]
    keys = ("id", "tenant", "template", "attempts", "code", "class", "dead_reason")
    assert {key: told_.__dict__[key] for key in keys} == {
        "id": str(email),
        "tenant": "acme",
        "template": "welcome_user",
        "attempts": 1,
        "code": "no_mailbox",
        "class": "permanent",
        "dead_reason": "permanent",
    }
    assert told_.levelno == logging.ERROR
    log = told(caplog)
    assert RECIPIENT not in log
    assert SECRET not in log


def test_where_of_an_error_that_was_not_raised() -> None:
    assert where(ValueError("x")) == "ValueError at no place"


def test_where_of_many_errors() -> None:
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
