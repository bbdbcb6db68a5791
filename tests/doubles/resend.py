"""Resend on 127.0.0.1: its API as documented, faults on order, and a record of what it accepted.

In the test's own process:

    with serve(ResendDouble()) as double: ...

or in another, for workers that are processes, too; the methods are the same:

    with in_a_process(rate=2) as double:
        double.add_faults(Fault(status=500, times=3))
        double.summary()["accepted"]
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

from doubles import double
from doubles.double import HttpDouble, as_json, serve
from doubles.http_server import Reply
from doubles.remote import RemoteDouble
from doubles.resend_parts import HTML, KEY, Fault, Refused, Settings, check
from support.concurrency import DEADLINE

__all__ = ["HTML", "KEY", "Fault", "ResendDouble", "in_a_process", "serve"]

MEMORY = 24 * 3600.0
LARGEST_BATCH = 100


class ResendDouble(HttpDouble[Fault]):
    """The service. It accepts: id, mailgres_id, idempotency key, path, API key, recipients."""

    fault = Fault

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = Settings(**settings)
        self.statuses: Counter[str] = Counter()
        self._bodies: deque[tuple[str, bytes]] = deque(maxlen=20)
        self._memory: dict[tuple[str, str], tuple[str, float, Reply]] = {}
        self._under_way: set[tuple[str, str]] = set()
        self._window, self._in_window = 0, 0
        self._query = ""
        self._sent: deque[float] = deque()
        self._open = threading.Event()
        self._open.set()

    # What tests do

    def set(self, **settings: Any) -> None:
        """Change the account."""
        with self._lock:
            for name, value in settings.items():
                if name not in {each.name for each in fields(Settings)}:
                    raise KeyError(name)
                setattr(self.settings, name, value)
            if "seed" in settings:
                self._random.seed(self.settings.seed)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Let calls wait until the end, or until `release`."""
        self._open.clear()
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Answer the calls that wait."""
        self._open.set()

    def bodies(self, path: str) -> list[bytes]:
        """Return the bodies of the last calls at a path."""
        with self._lock:
            return [body for each, body in self._bodies if each == path]

    def _counts(self) -> dict[str, Any]:
        return super()._counts() | {"statuses": dict(self.statuses)}

    # What clients do

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        """Handle a request of a client."""
        path, _, query = path.partition("?")
        self._query = query
        try:
            reply = self._handle(method, path, headers, body)
        except Refused as refused:
            reply = refused.reply()
        with self._lock:
            self._bodies.append((path, body))
            self.calls[path] += 1
            self.statuses["reset" if reply.reset else str(reply.status)] += 1
            reply.headers = self._limits() | reply.headers
        return reply

    def _handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        api_key = self._authenticate(headers)
        keyed = "idempotency-key" in headers
        fault = self._take_fault(
            lambda fault: (
                fault.path in (None, path)
                and (keyed or not fault.keyed)
                and (not fault.several or body.count(b'"to"') > 1)
            )
        )
        refuses = fault is not None and fault.status == HTTPStatus.UNPROCESSABLE_ENTITY
        if refuses and self._answered_before(api_key, headers):
            fault = None  # what was accepted once is valid: its key brings the first answer
        reply = None
        if fault is None or fault.accepts:
            self._count_request()
            reply = self._serve(method, path, api_key, headers, body)
        if fault is None:
            assert reply is not None
            return reply
        if fault.delay:
            time.sleep(fault.delay)
        return self._faulty(fault, reply)

    def _answered_before(self, api_key: str, headers: dict[str, str]) -> bool:
        """Return whether a call with this key succeeded before."""
        with self._lock:
            before = self._memory.get((api_key, headers.get("idempotency-key", "")))
        return before is not None and before[2].status == HTTPStatus.OK

    def _serve(
        self, method: str, path: str, api_key: str, headers: dict[str, str], body: bytes
    ) -> Reply:
        if method == "POST" and path in {"/emails", "/emails/batch"}:
            return self._once(api_key, path, headers, body)
        if path == "/usage" and self.settings.usage:
            return self._usage()
        if path == "/suppressions" and method == "GET":
            return self._suppressions()
        if path == "/domains":
            if api_key in self.settings.sending_only:
                raise Refused(
                    401, "restricted_api_key", "This API key is restricted to only send emails"
                )
            return as_json({"object": "list", "has_more": False, "data": []})
        if path in {"/emails", "/emails/batch"}:
            raise Refused(405, "method_not_allowed", "Method is not allowed for the requested path")
        raise Refused(404, "not_found", "The requested endpoint does not exist")

    def _suppressions(self) -> Reply:
        """Return a page of the list, as documented: `after` is the id of the last entry before."""
        given = dict(parse_qsl(self._query))
        limit, after = int(given.get("limit", "20")), given.get("after")
        entries = [
            {"object": "suppression", "id": f"s-{place}", "source_id": None, **entry}
            for place, entry in enumerate(self.settings.suppressions)
        ]
        start = 0
        if after is not None:
            start = 1 + next(place for place, one in enumerate(entries) if one["id"] == after)
        page = entries[start : start + limit]
        more = start + limit < len(entries)
        return as_json({"object": "list", "has_more": more, "data": page})

    def _authenticate(self, headers: dict[str, str]) -> str:
        given = headers.get("authorization", "").removeprefix("Bearer").strip()
        if not given:
            raise Refused(401, "missing_api_key", "Missing API key in the authorization header")
        if given in self.settings.suspended:
            raise Refused(403, "suspended_api_key", "This API key is suspended")
        if given not in self.settings.keys:
            if self.settings.wrong_key == "invalid_api_key":
                raise Refused(403, "invalid_api_key", "API key is invalid")
            raise Refused(400, self.settings.wrong_key, "API key is invalid")
        return given

    def _once(self, api_key: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        """Serve a call, or repeat the answer that its key had before."""
        given = headers.get("idempotency-key")
        if given is None:
            return self._send(api_key, path, headers, body, None)
        if not 1 <= len(given) <= 256:
            raise Refused(400, "invalid_idempotency_key", "The key must be between 1-256 chars")
        key, digest = (api_key, given), hashlib.sha256(path.encode() + body).hexdigest()
        with self._lock:
            before = self._memory.get(key)
            if before and self._time() - before[1] < MEMORY:
                if before[0] != digest:
                    raise Refused(
                        409,
                        "invalid_idempotent_request",
                        "Same idempotency key used with a different request payload",
                    )
                return Reply(before[2].status, before[2].body)
            if key in self._under_way:
                raise Refused(
                    409,
                    "concurrent_idempotent_requests",
                    "Same idempotency key used while original request is still in progress",
                )
            self._under_way.add(key)
        try:
            reply = self._send(api_key, path, headers, body, given)
            with self._lock:
                self._memory[key] = (digest, self._time(), reply)
            return reply
        finally:
            with self._lock:
                self._under_way.discard(key)

    def _send(
        self, api_key: str, path: str, headers: dict[str, str], body: bytes, key: str | None
    ) -> Reply:
        if len(body) > self.settings.largest:
            raise Refused(413, "payload_too_large", "The email is larger than allowed")
        if self.settings.latency:
            time.sleep(self.settings.latency)
        assert self._open.wait(DEADLINE), "the test did not release the call"
        try:
            reported = json.loads(body)
        except ValueError:
            raise Refused(400, "validation_error", "The body is not JSON") from None
        if path == "/emails":
            if not isinstance(reported, dict):
                raise Refused(422, "validation_error", "The body is not an object")
            check(reported, self.settings.unverified)
            return as_json({"id": self._accept([reported], api_key, path, key)[0]})
        return self._send_batch(reported, headers, api_key, key)

    def _send_batch(
        self, reported: Any, headers: dict[str, str], api_key: str, key: str | None
    ) -> Reply:
        if not isinstance(reported, list) or not 1 <= len(reported) <= LARGEST_BATCH:
            raise Refused(422, "validation_error", "Batches hold between 1 and 100 emails")
        if any(mail.get("attachments") for mail in reported):
            raise Refused(422, "validation_error", "Attachments are not supported in batches")
        permissive = headers.get("x-batch-validation") == "permissive"
        errors: list[dict[str, Any]] = []
        good: list[dict[str, Any]] = []
        for index, mail in enumerate(reported):
            try:
                check(mail, self.settings.unverified)
                good.append(mail)
            except Refused as refused:
                if not permissive or refused.status == 403:
                    raise
                errors.append({"index": index, "message": refused.message})
        ids = self._accept(good, api_key, "/emails/batch", key)
        answer: dict[str, Any] = {"data": [{"id": each} for each in ids]}
        return as_json(answer | ({"errors": errors} if permissive else {}))

    def _accept(
        self, mails: list[dict[str, Any]], api_key: str, path: str, key: str | None
    ) -> list[str]:
        ids = [str(uuid4()) for _ in mails]
        with self._lock:
            self._count_emails(len(mails))
            for mail, given in zip(mails, ids, strict=True):
                tags = {tag["name"]: tag["value"] for tag in mail.get("tags") or ()}
                self._accepted.append(
                    {
                        "id": given,
                        "mailgres_id": tags.get("mailgres_id"),
                        "key": key,
                        "path": path,
                        "api_key": api_key,
                        "to": mail["to"],
                    }
                )
        return ids

    # Limits

    def _time(self) -> float:
        return time.time() + self.settings.ahead

    def _count_request(self) -> None:
        with self._lock:
            if self.settings.rate is None:
                return
            # As many as the rate in a window of a second; a slower one has a longer window.
            length = max(1.0, 1 / self.settings.rate)
            window = int(self._time() / length)
            if window != self._window:
                self._window, self._in_window = window, 0
            self._in_window += 1
            if self._in_window > max(1, int(self.settings.rate)):
                raise Refused(
                    429,
                    "rate_limit_exceeded",
                    "Too many requests. You can only make a few requests per second.",
                    retry_after="1",
                )

    def _count_emails(self, count: int) -> None:
        now = self._time()
        while self._sent and self._sent[0] < now - 31 * 24 * 3600:
            self._sent.popleft()
        daily, monthly = self.settings.daily, self.settings.monthly
        if monthly is not None and len(self._sent) + count > monthly:
            raise Refused(429, "monthly_quota_exceeded", "You have reached your monthly quota")
        if daily is not None and self._today(now) + count > daily:
            raise Refused(429, "daily_quota_exceeded", "You have reached your daily email quota")
        if daily is not None or monthly is not None:
            self._sent.extend([now] * count)

    def _today(self, now: float) -> int:
        return sum(1 for at in self._sent if at > now - 24 * 3600)

    def _limits(self) -> dict[str, str]:
        reported: dict[str, str] = {}
        if self.settings.rate is not None:
            limit = max(1, int(self.settings.rate))
            left = max(0, limit - self._in_window)
            reported = {
                "ratelimit-limit": str(limit),
                "ratelimit-remaining": str(left),
                "ratelimit-reset": "1",
            }
        if self.settings.daily is not None:
            reported["x-resend-daily-quota"] = str(self._today(self._time()))
        return reported

    def _usage(self) -> Reply:
        with self._lock:
            now = self._time()
            first = self._sent[0] if self._sent else now
            used = self._today(now)
            daily = {"used": used, "limit": self.settings.daily, "resets_at": _iso(first + 86400)}
            monthly = {
                "used": len(self._sent),
                "limit": self.settings.monthly or 3000,
                "resets_at": _iso(now + 10 * 86400),
            }
        rate = {"limit": self.settings.rate or 10, "duration": "1000ms"}
        emails = {"daily": daily, "monthly": monthly}
        return as_json({"object": "usage", "emails": emails, "rate_limit": rate})

    # Faults

    @staticmethod
    def _faulty(fault: Fault, reply: Reply | None) -> Reply:
        if fault.reset:
            return Reply(0, b"", reset=True)
        if fault.status == 0 and reply is not None:  # the right answer, only late
            reply.drip = fault.drip
            return reply
        if fault.name is not None:
            wrong = Refused(fault.status, fault.name, fault.message).reply()
        else:
            wrong = Reply(fault.status, fault.body.encode(), fault.content_type)
        wrong.headers, wrong.drip = dict(fault.headers), fault.drip
        return wrong


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def in_a_process(**settings: Any) -> AbstractContextManager[RemoteDouble]:
    """Run a double in a process of its own."""
    return double.in_a_process("doubles.resend", **settings)


if __name__ == "__main__":
    double.run(ResendDouble())
