"""The webhooks of providers: who sent it, what it means, stored before it is answered.

Svix (Resend) retries everything that is not answered with 2xx. SNS retries 5xx and 429 and gives up
at another 4xx: such an answer is only for what a retry would not change.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from mailgres.http.answers import Answer, Refused
from mailgres.http.bodies import Bodies
from mailgres.webhooks import BadPayload, own, resend, ses, signature, sns
from mailgres.webhooks.certificates import Certificates, Unavailable, get
from mailgres.webhooks.events import read_json, read_object
from mailgres.webhooks.signature import BadSignature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from mailgres.http.recorder import Recorder
    from mailgres.providers.base import Account
    from mailgres.settings.live import LiveSettings

log = logging.getLogger(__name__)

LARGEST_BODY = 1024 * 1024
"""Largest body in bytes. SNS sends at most 256 KiB, which JSON may double."""


class Webhooks:
    """The handlers of the webhooks. Secrets are read from the settings at every request."""

    def __init__(
        self,
        live: LiveSettings,
        recorder: Recorder,
        *,
        certificates: Certificates | None = None,
        confirm: Callable[[str], bytes] = get,
    ) -> None:
        self._live = live
        self._recorder = recorder
        self._bodies = Bodies()
        self._certificates = certificates or Certificates()
        self._confirm = confirm

    def routes(self) -> list[Route]:
        """Return the endpoints."""
        return [
            Route("/webhooks/resend", self.resend, methods=["POST"]),
            Route("/webhooks/resend/{account}", self.resend, methods=["POST"]),
            Route("/webhooks/ses/{secret}", self.ses, methods=["POST"]),
            Route("/webhooks/events", self.events, methods=["POST"]),
        ]

    async def resend(self, request: Request) -> Response:
        """Record an event of Resend."""
        name = request.path_params.get("account", "resend")
        account = self._account(name)
        body = await self._bodies.read(request, LARGEST_BODY)
        event_id = _verified(body, request, account.options["webhook_secret"], "svix")
        event = _parsed(lambda: resend.parse(read_object(body), event_id))
        return await self._record([(account.name, event)])

    async def ses(self, request: Request) -> Response:
        """Record the events in a message of SNS, or confirm a subscription."""
        account = self._account_of_url(request.path_params["secret"])
        body = await self._bodies.read(request, LARGEST_BODY)
        message = _parsed(lambda: sns.read_message(body))
        topics = account.options.get("webhook_topics", ())
        await self._blocking(lambda: sns.verify(message, topics, self._certificates.at))
        if message.type != "Notification":
            return await self._subscription(message, account)
        if not message.text.lstrip().startswith("{"):
            return Answer({"ignored": 1})  # SES says hello to a new topic in plain words
        events = _parsed(lambda: ses.parse(read_object(message.text), message.id))
        return await self._record([(account.name, event) for event in events])

    async def events(self, request: Request) -> Response:
        """Record events in our own format."""
        body = await self._bodies.read(request, LARGEST_BODY)
        settings = self._live.current
        accounts = [each for each in settings.receivers() if each.kind not in {"resend", "ses"}]
        if not settings.events_secret and not accounts:
            raise _not_configured("events_secret")
        try:
            event_id = _verified(body, request, settings.events_secret or ())
            only = None
        except Refused as refused:
            event_id, only = _signed_by_one(body, request, accounts) or _again(refused)
        events = _parsed(lambda: own.parse(read_json(body), event_id))
        if only and any(provider != only for provider, _ in events):
            hint = f"This secret is for events of {only}."
            raise Refused(403, "the event is about another provider", hint)
        return await self._record(events)

    async def _record(self, events: list[tuple[str, Any]]) -> Response:
        results = await self._recorder.record(events)
        reported = {"action": "webhook", "results": results}
        log.debug("%d events recorded", len(events), extra=reported)
        return Answer(results)

    async def _subscription(self, message: sns.SnsMessage, account: Account) -> Response:
        if message.type == "SubscriptionConfirmation":
            url = _parsed(lambda: sns.confirmation_url(message))
            await self._blocking(lambda: self._confirm(url))
            log.info("subscribed to a topic", extra=_about(message, account))
            return Answer({"confirmed": 1})
        log.warning("unsubscribed from a topic", extra=_about(message, account))
        return Answer({"ignored": 1})

    async def _blocking(self, work: Callable[[], object]) -> None:
        try:
            await self._recorder.run(work)
        except BadSignature as why:
            raise Refused(403, f"the signature is not accepted: {why}", _ABOUT_SES) from None
        except Unavailable as why:
            headers = {"Retry-After": "30"}
            raise Refused(503, str(why), "Send it again later.", headers) from None

    def _account(self, name: str) -> Account:
        """Return an account of Resend with a webhook."""
        for account in self._live.current.receivers():
            if account.kind == "resend" and account.name == name:
                return account
        raise _not_configured("resend_webhook_secret")

    def _account_of_url(self, given: str) -> Account:
        """Return the account of SES that has the secret of this address.

        All secrets are compared, by their digests, so that the time says nothing about them.
        """
        theirs = hashlib.sha256(given.encode("utf-8", "replace")).digest()
        found = None
        for account in self._live.current.receivers():
            for secret in account.options["webhook_secret"] if account.kind == "ses" else ():
                mine = hashlib.sha256(secret.encode()).digest()
                found = account if hmac.compare_digest(mine, theirs) else found
        if found is None:
            raise Refused(404, "not found", "Check the address of the subscription.")
        return found


_ABOUT_SES = "Check the setting ses_webhook_topics, and that raw message delivery is off."


def _about(message: sns.SnsMessage, account: Account) -> dict[str, object]:
    return {"action": "webhook", "provider": account.name, "topic": message.topic}


def _not_configured(setting: str) -> Refused:
    hint = f"Set {setting}, or use the address of another account."
    return Refused(404, "there is no such webhook", hint)


def _parsed(parse: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it returns
    try:
        return parse()
    except BadPayload as why:
        raise Refused(400, str(why), "docs/events.md shows a payload of each event.") from None


def _verified(
    body: bytes, request: Request, secrets: Iterable[str], prefix: str = "webhook"
) -> str:
    try:
        return signature.verify(body, request.headers, secrets, prefix)
    except BadSignature as why:
        hint = "Check the signing secret in the settings, and the clock of this machine."
        raise Refused(401, f"the signature is not accepted: {why}", hint) from None


def _signed_by_one(
    body: bytes, request: Request, accounts: Iterable[Account]
) -> tuple[str, str] | None:
    """Return the id of the request, and the account whose secret signed it."""
    for account in accounts:
        try:
            event_id = signature.verify(body, request.headers, account.options["webhook_secret"])
        except BadSignature:
            continue
        return event_id, account.name
    return None


def _again(refused: Refused) -> tuple[str, str]:
    raise refused
