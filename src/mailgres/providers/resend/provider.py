"""Sends through Resend: one email in a call, or a batch.

The SDK has one API key, one URL and one HTTP client in its module. Accounts of several tenants send
from many threads, so these are never set per call: one client is installed in the SDK, and it finds
the account of its call in a context variable. An application can use the SDK in the same process as
before.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

import resend

from mailgres.errors import MailgresError
from mailgres.model import Limits, Result
from mailgres.providers.base import Capabilities
from mailgres.providers.faults import UNKNOWN, classify
from mailgres.providers.prepare import prepare
from mailgres.providers.resend.batch import LARGEST_BATCH, calls, id_in, results_of, shared
from mailgres.providers.resend.faults import (
    BAD_REQUEST,
    NO_ANSWER,
    NO_CONNECTION,
    RESEND_RULES,
    UNREADABLE,
)
from mailgres.providers.resend.http import Account, HttpCall, Malformed, NoAnswer, NoConnection
from mailgres.providers.resend.limits import limits_in, next_reset, usage_limits, usage_reset
from mailgres.providers.resend.message import as_params
from mailgres.providers.retry_after import retry_after, server_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from mailgres.model import Message
    from mailgres.providers.faults import Rule

log = logging.getLogger(__name__)

API_URL = "https://api.resend.com"

_OK = 200
_REDIRECTED = 300
_NOT_FOR_THIS_KEY = frozenset({401, 403, 404, 405})
_LONGEST_MESSAGE = 500
_PAGE = 100
_MOST_REFUSALS = 10
_LONGEST_DETAIL = 4000
_LONGEST_CODE = 100
_CODES = {
    NoConnection: NO_CONNECTION,
    NoAnswer: NO_ANSWER,
    Malformed: BAD_REQUEST,
}

_current: ContextVar[HttpCall | None] = ContextVar("mailgres_resend_call", default=None)


class ResendProvider:
    """An account at Resend."""

    kind = "resend"

    def __init__(
        self,
        api_key: str,
        api_url: str = API_URL,
        *,
        name: str = "resend",
        timeout: float = 30.0,
        connections: int = 10,
        batch_size: int = LARGEST_BATCH,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if not re.fullmatch(r"[\x21-\x7e]+", api_key):
            raise MailgresError(
                "the API key of Resend is empty, or has spaces or line breaks in it",
                "Copy it again from resend.com/api-keys.",
            )
        self.name = name
        self.capabilities = Capabilities(
            batch_size=max(1, min(batch_size, LARGEST_BATCH)), idempotent=True, fixed_batches=True
        )
        self._account = Account(api_key, api_url, timeout=timeout, connections=connections)
        self._now = now
        self._limits: Limits | None = None
        self._unknown: set[str] = set()
        _install()

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Send the messages: a batch in one call, other messages one by one."""
        results: dict[int, Result] = {}
        for batch_id, places in calls(messages):
            ready: dict[int, dict[str, Any]] = {}
            for place in places:
                params = prepare(as_params, messages[place])
                if isinstance(params, Result):
                    results[place] = params
                else:
                    ready[place] = params
            if ready:
                answers = self._call(batch_id, [messages[place] for place in ready], ready.values())
                results.update(zip(ready, answers, strict=True))
        return [results[place] for place in range(len(messages))]

    def limits(self) -> Limits | None:
        """Return the limits in the headers of the last answer and in the account's usage."""
        return self._limits

    def check(self) -> Result:
        """Request the account's usage, which every key may read; if that fails, its domains.

        A key that may only send gets `restricted_api_key` for the domains: it is valid.
        """
        reported, call = self._usage()
        if reported is not None:
            return Result("sent")
        if call.answer is not None and call.answer.status in _NOT_FOR_THIS_KEY:
            reported, call = self._ask("/domains", resend.Domains.list)
        fault = None if reported is not None else self._fault(call)
        return Result("sent") if fault is None or fault.code == "restricted_api_key" else fault

    def suppressions(self) -> Iterator[dict[str, Any]]:
        """Yield the addresses that Resend sends nothing to: email, origin, created_at."""
        after, refused = None, 0
        while True:
            params: dict[str, Any] = {"limit": _PAGE} | ({"after": after} if after else {})
            reported, call = self._ask(
                f"/suppressions?{urlencode(params)}", resend.Suppressions.list, params
            )
            entries = reported.get("data") if reported else None
            if not isinstance(entries, list):
                fault = self._fault(call)
                refused += 1
                if fault.verdict != "rate" or refused > _MOST_REFUSALS:
                    raise MailgresError(
                        f"the suppressions of {self.name} could not be read: {fault.message}",
                        "Nothing was changed. The key needs full access, not only for sending.",
                    )
                time.sleep((fault.retry_after or timedelta(seconds=1)).total_seconds())
                continue
            refused = 0
            yield from (one for one in entries if isinstance(one, dict))
            after = entries[-1].get("id") if entries and isinstance(entries[-1], dict) else None
            if not (reported and reported.get("has_more")) or not after:
                return

    def close(self) -> None:
        """Close the idle connections."""
        self._account.close()

    def _call(
        self, batch_id: UUID | None, messages: Sequence[Message], params: Iterable[dict[str, Any]]
    ) -> Sequence[Result]:
        words = cast("list[resend.Emails.SendParams]", list(params))
        if batch_id is not None:
            return self._send_batch(messages, words, f"mailgres/batch/{batch_id}")
        return [self._send_one(messages[0], words[0])]

    def _send_one(self, message: Message, params: resend.Emails.SendParams) -> Result:
        reported, call = self._ask(
            "/emails", resend.Emails.send, params, {"idempotency_key": message.email.key}
        )
        if reported is None:
            return self._fault(call)
        given = id_in(reported)
        return Result("sent", given) if given else self._unreadable(call)

    def _send_batch(
        self, messages: Sequence[Message], params: list[resend.Emails.SendParams], key: str
    ) -> Sequence[Result]:
        options = {"idempotency_key": key, "batch_validation": "permissive"}
        reported, call = self._ask("/emails/batch", resend.Batch.send, params, options)
        if reported is None:
            return [shared(self._fault(call), messages)] * len(messages)
        return results_of(reported, len(messages), self._refused) or (
            [self._unreadable(call)] * len(messages)
        )

    def _usage(self) -> tuple[dict[str, Any] | None, HttpCall]:
        reported, call = self._ask("/usage", resend.Usage.get)
        if reported is not None:
            self._limits = usage_limits(reported)
        return reported, call

    def _ask(
        self, path: str, function: Callable[..., Any], *arguments: object
    ) -> tuple[dict[str, Any] | None, HttpCall]:
        """Make a call through the SDK; return its answer, or None, and how the call went."""
        broken = "the SDK did not use the client of mailgres"
        with _serving(HttpCall(self._account, path)) as call:
            try:
                reported = function(*arguments)
            except Exception as error:  # noqa: BLE001 - strange answers break the SDK, ours is kept
                reported, broken = None, type(error).__name__
        if call.answer is None and call.fault is None:
            # The SDK failed, or has another client: it is unknown whether anything was sent.
            call.fault = NoAnswer(broken)
        if call.answer is not None:
            self._limits = limits_in(call.answer.headers, self._limits)
            if not _OK <= call.answer.status < _REDIRECTED:
                reported = None
        return reported if isinstance(reported, dict) else None, call

    def _fault(self, call: HttpCall) -> Result:
        """Return the result of a call that failed."""
        answer = call.answer
        if answer is None:
            code = next(code for kind, code in _CODES.items() if isinstance(call.fault, kind))
            return self._result(code, None, str(call.fault))
        if _OK <= answer.status < _REDIRECTED:
            return self._unreadable(call)
        reported = answer.json()
        reported = reported if isinstance(reported, dict) else {}
        name, words = reported.get("name"), reported.get("message")
        return self._result(
            name[:_LONGEST_CODE] if isinstance(name, str) and name else f"http_{answer.status}",
            answer.status,
            words[:_LONGEST_MESSAGE] if isinstance(words, str) else f"status {answer.status}",
            answer.body[:_LONGEST_DETAIL].decode("utf-8", "replace"),
            answer.headers,
        )

    def _unreadable(self, call: HttpCall) -> Result:
        body = call.answer.body[:_LONGEST_DETAIL].decode("utf-8", "replace") if call.answer else ""
        return self._result(UNREADABLE, None, "", body)

    def _refused(self, words: str) -> Result:
        """Return the result of an email that was refused while its batch was sent."""
        return self._result("validation_error", 422, words[:_LONGEST_MESSAGE])

    def _result(
        self,
        code: str,
        status: int | None,
        words: str,
        detail: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Result:
        rule = classify(RESEND_RULES, status=status, code=code, text=words)
        if rule is UNKNOWN:
            self._warn(code, status)
        theirs = f" Resend: {words}" if status is not None else f" ({words})"
        said = rule.meaning + (theirs if words else "")
        return Result(
            rule.verdict,
            code=_plain(code),
            message=_plain(said)[:_LONGEST_MESSAGE],
            detail=_plain(detail or words)[:_LONGEST_DETAIL] or None,
            retry_after=self._retry_after(rule, code, headers or {}),
            account=rule.scope == "account",
            pinned=rule.pinned,
            suppress=rule.suppress,
        )

    def _retry_after(self, rule: Rule, code: str, headers: Mapping[str, str]) -> timedelta | None:
        now = server_time(headers, self._now())
        said = retry_after(headers.get("retry-after"), now)
        if rule.verdict != "quota":
            return said
        # The header is also about the rate here, so only a long wait is for the quota.
        if said is not None and said > timedelta(minutes=1):
            return said
        reported, _ = self._usage()
        return usage_reset(reported or {}, code, now) or next_reset(code, now)

    def _warn(self, code: str, status: int | None) -> None:
        """Log once that a fault is unknown: every email may repeat it."""
        if code not in self._unknown:
            self._unknown.add(code)
            log.warning(
                "unknown fault of Resend; treated as transient",
                extra={
                    "action": "send",
                    "provider": self.name,
                    "code": code,
                    "http_status": status,
                },
            )


class _Client(resend.HTTPClient):
    """The SDK's HTTP client: passes each call to its account."""

    def __init__(self, others: resend.HTTPClient) -> None:
        self._others = others

    def request(  # noqa: PLR0917 - the signature is the SDK's
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        json: dict[str, object] | list[object] | None = None,
        files: dict[str, Any] | None = None,
        data: dict[str, str] | None = None,
    ) -> tuple[bytes, int, Mapping[str, str]]:
        """Make the call for our account; pass other calls to the SDK's previous client."""
        call = _current.get()
        if call is None:
            more = {"files": files, "data": data} if files or data else {}
            return self._others.request(method, url, headers, json, **more)
        try:
            # Proxies refuse a GET with a body.
            answer = call.account.call(
                method.upper(), call.path, headers, json if method.lower() != "get" else None
            )
        except (NoConnection, NoAnswer, Malformed) as fault:
            call.fault = fault
            raise
        call.answer = answer
        return answer.body, answer.status, answer.headers


_installing = threading.Lock()


def _install() -> None:
    """Install our client in the SDK, in front of the previous one; cheap if it is installed."""
    if isinstance(resend.default_http_client, _Client):
        return
    with _installing:
        if not isinstance(resend.default_http_client, _Client):
            resend.default_http_client = _Client(
                cast("resend.HTTPClient", resend.default_http_client)
            )


@contextmanager
def _serving(call: HttpCall) -> Iterator[HttpCall]:
    _install()
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)


def _plain(text: str) -> str:
    """Return a text that PostgreSQL accepts: without NUL and lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ").strip()
