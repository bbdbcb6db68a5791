"""Send signed samples to the webhooks of a running service, as their providers would."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import requests

from mailgres.errors import MailgresError
from mailgres.webhooks import samples, signature

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mailgres.providers.base import Account
    from mailgres.settings import Settings

TIMEOUT_SECONDS = 10.0
_OK, _FORBIDDEN = 200, 403
ONLY_SNS = "reached; only SNS can sign an event of SES, and an unsigned one was refused"
OWN = "events"
"""How the webhook for our own format is named here."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A request: what it is, where it goes, and what it holds. Its text holds no secret."""

    account: str
    event: str
    path: str
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Reaction:
    """What the service did with a sample."""

    account: str
    event: str
    status: int
    result: str
    good: bool


def samples_for(settings: Settings) -> Iterator[Sample]:
    """Yield a sample of each event for each account with a webhook."""
    about = samples.About(f"webhooks-test-{uuid4()}", str(uuid4()))
    for account in settings.receivers():
        yield from _of_account(account, about)
    for secret in settings.events_secret or ():
        yield _own(OWN, "webhooks-test", secret, about)


def send(base: str, sample: Sample) -> Reaction:
    """Send a sample; return what came back."""
    url = base.rstrip("/") + sample.path
    headers = {"content-type": "application/json", **sample.headers}
    try:
        answer = requests.post(
            url, data=sample.body, headers=headers, timeout=TIMEOUT_SECONDS, allow_redirects=False
        )
        given = answer.json()
    except requests.JSONDecodeError:
        given = {"error": "the answer is not JSON: is this mailgres?"}
    except requests.RequestException as error:
        raise MailgresError(
            f"{base} does not answer: {type(error).__name__}",
            "Start `mailgres serve`, or name its address with --url.",
        ) from None
    return _reaction(sample, answer.status_code, given if isinstance(given, dict) else {})


def _reaction(sample: Sample, status: int, given: dict[str, Any]) -> Reaction:
    if not sample.headers:  # SNS alone has the key
        reached = status == _FORBIDDEN
        words = ONLY_SNS if reached else str(given.get("error", ""))
        return Reaction(sample.account, sample.event, status, words, reached)
    good = status == _OK
    words = ", ".join(map(str, given)) if good else str(given.get("error", ""))
    return Reaction(sample.account, sample.event, status, words, good)


def _of_account(account: Account, about: samples.About) -> Iterator[Sample]:
    secrets = account.options["webhook_secret"]
    if account.kind == "resend":
        for kind in samples.RESEND:
            body = json.dumps(samples.resend(kind, about)).encode()
            path = "/webhooks/resend"
            path += "" if account.name == "resend" else f"/{account.name}"
            headers = signature.sign(body, secrets[-1], f"msg_{uuid4().hex}", "svix")
            yield Sample(account.name, kind, path, body, headers)
    elif account.kind == "ses":
        topic = account.options.get("webhook_topics", ("",))[0]
        fields = {"Type": "Notification", "MessageId": str(uuid4()), "TopicArn": topic}
        fields["Timestamp"] = datetime.now(UTC).isoformat()
        body = json.dumps({**fields, "Message": "{}"}).encode()
        yield Sample(account.name, "(unsigned)", f"/webhooks/ses/{secrets[-1]}", body, {})
    else:
        yield _own(account.name, account.name, secrets[-1], about)


def _own(name: str, provider: str, secret: str, about: samples.About) -> Sample:
    event = samples.own(provider, about)
    body = json.dumps(event).encode()
    headers = signature.sign(body, secret, f"msg_{uuid4().hex}")
    return Sample(name, event["event"], "/webhooks/events", body, headers)
