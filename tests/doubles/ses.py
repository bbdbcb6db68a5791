"""SES on 127.0.0.1: faults on order and a memory of what it took, before moto's server or alone.

    with serve(SesDouble()) as double: ...              # lean: answers by itself
    with moto() as url, serve(SesDouble(upstream=url)) as double: ...

or in a process of its own, for workers that are processes, too; the methods are the same:

    with in_a_process(rate=14) as double:
        double.add_faults(Fault("TooManyRequestsException", "Maximum sending rate exceeded."))

moto checks requests as SES does, but takes 7 ms for a call, closes every connection and has no
GetAccount; what it lacks is answered here, and benchmarks do without it. Clients find the double by
AWS_ENDPOINT_URL_SESV2; `environ()` has what they need.
"""

from __future__ import annotations

import json
import random
import re
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from doubles.remote import RemoteDouble

ACCESS_KEY = "AKIADOUBLE"
SEND = "/v2/email/outbound-emails"
ACCOUNT = "/v2/email/account"
_CREDENTIAL = re.compile(r"Credential=([^/,]+)/")
_STATUSES = {"TooManyRequestsException": 429, "ThrottlingException": 400, "NotFoundException": 404}
_DENIED = {"AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"}


@dataclass
class Fault:
    """Something that goes wrong with the next calls that send.

    `code`: the API's name of it; without one, `text` is an HTML page. `accepts`: the email goes
    out all the same. `reset`: the connection breaks instead of an answer. `delay`: seconds before
    the answer, after the email is taken. `times`: with how many calls (-1: for ever); `share`:
    with this part of them. `path`: of which calls.
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
            return Reply(self.status or 502, page, {"content-type": "text/html"})
        return error(self.code, self.text, self.status)


@dataclass
class Reply:
    """An answer on its way out."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    reset: bool = False


def error(
    code: str, text: str, status: int | None = None, headers: dict[str, str] | None = None
) -> Reply:
    """An error as the API tells it."""
    known = 403 if code in _DENIED else _STATUSES.get(code, 400)
    body = json.dumps({"message": text}).encode()
    return Reply(status or known, body, {"x-amzn-errortype": code, **(headers or {})})


class SesDouble:
    """The service. Threads call it at the same time.

    `rate`, `daily`: what GetAccount tells, and what is enforced (-1: no daily limit).
    `unverified`: from-domains that are refused. `paused`: whether the account may not send.
    """

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
        self.url = ""
        self.calls: Counter[str] = Counter()
        self.connections = 0
        self.faults_met = 0
        self._faults: deque[Fault] = deque()
        self._accepted: list[dict[str, Any]] = []
        self._in_second: Counter[int] = Counter()
        self._random = random.Random(0)  # noqa: S311 - faults, not secrets
        self._lock = threading.Lock()

    # What tests do

    def add_faults(self, *faults: Fault) -> None:
        """Let calls fail, in this order."""
        with self._lock:
            self._faults.extend(faults)

    def clear_faults(self) -> None:
        """Let everything work again."""
        with self._lock:
            self._faults.clear()

    def set(self, **settings: Any) -> None:
        """Change the account."""
        with self._lock:
            self.settings |= settings
            if "seed" in settings:
                self._random.seed(settings["seed"])

    def accepted(self) -> list[dict[str, Any]]:
        """What really went out: id, mailgres_id, tags, and the request."""
        with self._lock:
            return list(self._accepted)

    def summary(self) -> dict[str, Any]:
        """How many emails went out, how many more than once, and how many calls there were."""
        with self._lock:
            by_id = Counter(each["mailgres_id"] for each in self._accepted)
            return {
                "accepted": len(self._accepted),
                "different": len(by_id),
                "doubles": {key: n for key, n in by_id.items() if n > 1},
                "calls": dict(self.calls),
                "faults_met": self.faults_met,
                "faults_left": len(self._faults),
            }

    # What clients do

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        """Handle a request."""
        if path.startswith("/_double/"):
            return self._control(method, path.removeprefix("/_double/"), body)
        with self._lock:
            self.calls[path] += 1
            fault = self._next_fault(path)
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
            reply = Reply(200, json.dumps({"MessageId": str(uuid4())}).encode())
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
        return Reply(200, json.dumps(reported | {"EnforcementStatus": "HEALTHY"}).encode())

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
            return Reply(answer.code, answer.read(), {"x-amzn-errortype": code})

    def _next_fault(self, path: str) -> Fault | None:
        for fault in self._faults:
            if fault.path != path or self._random.random() >= fault.share:
                continue
            self.faults_met += 1
            if fault.times > 0:
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
            return fault
        return None

    def _control(self, method: str, what: str, body: bytes) -> Reply:
        order: Any = json.loads(body or b"null")
        reported: Any = None
        if (method, what) == ("POST", "faults"):
            self.add_faults(*(Fault(**each) for each in order))
        elif (method, what) == ("DELETE", "faults"):
            self.clear_faults()
        elif (method, what) == ("POST", "settings"):
            self.set(**order)
        elif (method, what) == ("GET", "accepted"):
            reported = self.accepted()
        return Reply(200, json.dumps(self.summary() if reported is None else reported).encode())


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, double: SesDouble) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.double = double
        self.open: set[socket.socket] = set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    server: _Server

    def handle(self) -> None:
        self.server.double.connections += 1
        self.server.open.add(self.connection)
        try:
            while self._one():
                pass
        finally:
            self.server.open.discard(self.connection)

    def _one(self) -> bool:
        line = self.rfile.readline(65536)
        if not line.endswith(b"\n"):
            return False
        method, path, _ = line.decode("ascii").split(" ", 2)
        headers: dict[str, str] = {}
        while (line := self.rfile.readline(65536)) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        length = int(headers.get("content-length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # whoever asked was killed
            return False
        reply = self.server.double.answer(method, path, headers, body)
        if reply.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return False
        head = {"content-type": "application/json", "content-length": str(len(reply.body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in (head | reply.headers).items())
        start = f"HTTP/1.1 {reply.status} Answer\r\n{lines}\r\n"
        self.wfile.write(start.encode("latin-1") + reply.body)
        return headers.get("connection", "").lower() != "close"


def environ(url: str, key: str = ACCESS_KEY) -> dict[str, str]:
    """The environment of a process that is to take the double for SES, and for nothing else."""
    return {
        "AWS_ENDPOINT_URL_SESV2": url,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": "secret of the double",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }


@contextmanager
def serve(double: SesDouble) -> Iterator[SesDouble]:
    """Let a double answer in threads of this process."""
    with _Server(double) as server:
        double.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield double
        finally:
            server.shutdown()
            for each in list(server.open):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
            thread.join()


@contextmanager
def moto(*domains: str) -> Iterator[str]:
    """moto's SES, in which these from-domains are verified; gives its URL."""
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


@contextmanager
def in_a_process(**settings: Any) -> Iterator[RemoteDouble]:
    """Run a lean double in a process of its own."""
    command = [sys.executable, "-m", "doubles.ses"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    ) as process:
        try:
            assert process.stdout is not None
            double = RemoteDouble(process.stdout.readline().strip())
            if settings:
                double.set(**settings)
            yield double
        finally:
            process.terminate()


def main() -> None:
    """Answer until somebody ends the process, or whoever started it ends."""
    with serve(SesDouble()) as double:
        print(double.url, flush=True)  # noqa: T201 - how the starter learns it
        sys.stdin.read()


if __name__ == "__main__":
    main()
