"""SES on 127.0.0.1: faults on order and a record of what it accepted, alone or in front of moto.

    with serve(SesDouble()) as double: ...              # answers by itself
    with moto() as url, serve(SesDouble(upstream=url)) as double: ...

or in a process of its own, for workers that are processes, too; the methods are the same:

    with in_a_process(rate=14) as double:
        double.add_faults(Fault("TooManyRequestsException", "Maximum sending rate exceeded."))

moto checks requests as SES does, but takes 7 ms for a call, closes every connection and has no
GetAccount, which is answered here; benchmarks do without moto. Clients find the double by
AWS_ENDPOINT_URL_SESV2; `environ()` has all variables they need.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from doubles import double
from doubles.double import HttpDouble, as_json, serve
from doubles.http_server import Reply
from doubles.remote import RemoteDouble

__all__ = [
    "ACCESS_KEY",
    "ACCOUNT",
    "SEND",
    "Fault",
    "Reply",
    "SesDouble",
    "environ",
    "error",
    "in_a_process",
    "moto",
    "serve",
]

ACCESS_KEY = "AKIADOUBLE"
SEND = "/v2/email/outbound-emails"
ACCOUNT = "/v2/email/account"
_CREDENTIAL = re.compile(r"Credential=([^/,]+)/")
_STATUSES = {"TooManyRequestsException": 429, "ThrottlingException": 400, "NotFoundException": 404}
_DENIED = {"AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"}


@dataclass
class Fault:
    """A fault of the next calls that send.

    `code`: the API's name of it; without one, `text` is an HTML page. `accepts`: the email is
    still sent. `reset`: the connection breaks instead of an answer. `delay`: seconds before the
    answer, after the email is accepted. `times`: how many calls it meets (-1: all); `share`: the
    part of them it meets. `path`: the path of these calls.
    """

    code: str | None = None
    text: str = "a fault on order"
    status: int | None = None
    accepts: bool = False
    reset: bool = False
    delay: float = 0.0
    times: int = 1
    share: float = 1.0
    path: str = SEND

    def reply(self) -> Reply:
        if self.reset:
            return Reply(0, b"", reset=True)
        if self.code is None:
            page = f"<html><body>{self.text}</body></html>".encode()
            return Reply(self.status or 502, page, "text/html")
        return error(self.code, self.text, self.status)


def error(
    code: str, text: str, status: int | None = None, headers: dict[str, str] | None = None
) -> Reply:
    """Return an error as the API does."""
    known = 403 if code in _DENIED else _STATUSES.get(code, 400)
    body = json.dumps({"message": text}).encode()
    return Reply(status or known, body, headers={"x-amzn-errortype": code, **(headers or {})})


class SesDouble(HttpDouble[Fault]):
    """The service. It accepts: id, mailgres_id, tags, and the request.

    `rate`, `daily`: what GetAccount returns, and what is enforced (-1: no daily limit).
    `unverified`: from-domains that are refused. `paused`: whether the account may not send.
    """

    fault = Fault

    def __init__(
        self,
        upstream: str | None = None,
        *,
        keys: tuple[str, ...] = (ACCESS_KEY,),
        rate: float = 14.0,
        daily: int = -1,
        enforce: bool = False,
        unverified: tuple[str, ...] = (),
        paused: bool = False,
        latency: float = 0.0,
    ) -> None:
        super().__init__()
        self.upstream = upstream
        self.settings: dict[str, Any] = {
            "keys": keys,
            "rate": rate,
            "daily": daily,
            "enforce": enforce,
            "unverified": unverified,
            "paused": paused,
            "latency": latency,
        }
        self._in_second: Counter[int] = Counter()

    def set(self, **settings: Any) -> None:
        """Change the account."""
        with self._lock:
            self.settings |= settings
            if "seed" in settings:
                self._random.seed(settings["seed"])

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        """Handle a request of a client."""
        with self._lock:
            self.calls[path] += 1
        fault = self._take_fault(lambda fault: fault.path == path)
        if fault is None:
            return self._serve(method, path, headers, body)
        if fault.accepts:
            self._serve(method, path, headers, body)
        if fault.delay:
            time.sleep(fault.delay)
        return fault.reply()

    def _serve(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        key = _CREDENTIAL.search(headers.get("authorization", ""))
        if key is None or key[1] not in self.settings["keys"]:
            return error(
                "UnrecognizedClientException",
                "The security token included in the request is invalid.",
            )
        if path == ACCOUNT:
            return self._account()
        refused = self._refused(json.loads(body)) if path == SEND else None
        if refused:
            return refused
        if self.settings["latency"]:
            time.sleep(self.settings["latency"])
        if self.upstream:
            reply = self._pass_on(method, path, headers, body)
        else:
            reply = as_json({"MessageId": str(uuid4())})
        if path == SEND and reply.status == 200:
            self._accept(json.loads(body), json.loads(reply.body)["MessageId"])
        return reply

    def _account(self) -> Reply:
        quota = {
            "Max24HourSend": self.settings["daily"],
            "MaxSendRate": self.settings["rate"],
            "SentLast24Hours": len(self._accepted),
        }
        reported = {"SendQuota": quota, "SendingEnabled": not self.settings["paused"]}
        return as_json(reported | {"EnforcementStatus": "HEALTHY"})

    def _refused(self, request: dict[str, Any]) -> Reply | None:
        if self.settings["paused"]:
            return error("SendingPausedException", "Sending paused for this account.")
        sender = request["FromEmailAddress"].rpartition("<")[2].rstrip(">")
        if sender.rpartition("@")[2] in self.settings["unverified"]:
            text = f"Email address is not verified. The following identities failed: {sender}"
            return error("MessageRejected", text)
        if not self.settings["enforce"]:
            return None
        with self._lock:
            self._in_second[int(time.time())] += 1
            if self._in_second[int(time.time())] > self.settings["rate"]:
                return error("TooManyRequestsException", "Maximum sending rate exceeded.")
            if 0 <= self.settings["daily"] <= len(self._accepted):
                return error("TooManyRequestsException", "Daily message quota exceeded.")
        return None

    def _accept(self, request: dict[str, Any], message_id: str) -> None:
        tags = {tag["Name"]: tag["Value"] for tag in request.get("EmailTags") or ()}
        with self._lock:
            self._accepted.append(
                {
                    "id": message_id,
                    "mailgres_id": tags.get("mailgres_id"),
                    "tags": tags,
                    "request": request,
                }
            )

    def _pass_on(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        kept = {name: headers[name] for name in ("authorization", "content-type", "x-amz-date")}
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{self.upstream}{path}", method=method, data=body, headers=kept
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                return Reply(answer.status, answer.read())
        except urllib.error.HTTPError as answer:
            code = answer.headers.get("x-amzn-errortype", "")
            return Reply(answer.code, answer.read(), headers={"x-amzn-errortype": code})


def environ(url: str, key: str = ACCESS_KEY) -> dict[str, str]:
    """Return the environment of a process that uses the double as SES, and nothing else of AWS."""
    return {
        "AWS_ENDPOINT_URL_SESV2": url,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": "secret of the double",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }


@contextmanager
def moto(*domains: str) -> Iterator[str]:
    """Run moto's SES with these verified from-domains; yield its URL."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        for domain in domains:
            request = urllib.request.Request(  # noqa: S310 - our own server
                f"{url}/v2/email/identities",
                data=json.dumps({"EmailIdentity": domain}).encode(),
                headers={
                    "content-type": "application/json",
                    "authorization": f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20260101/eu-west-1"
                    "/ses/aws4_request, SignedHeaders=host, Signature=0",
                },
            )
            urllib.request.urlopen(request, timeout=30).close()  # noqa: S310
        yield url
    finally:
        server.stop()


def in_a_process(**settings: Any) -> AbstractContextManager[RemoteDouble]:
    """Run a double without moto in a process of its own."""
    return double.in_a_process("doubles.ses", **settings)


if __name__ == "__main__":
    double.run(SesDouble())
