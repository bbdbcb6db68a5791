"""The double of Resend: its faults, its account settings, and how it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from doubles.http_server import Reply

KEY = "re_double"
HTML = "<html><body><h1>502 Bad Gateway</h1></body></html>"
TAG = re.compile(r"[A-Za-z0-9_-]{1,256}")
ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


@dataclass
class Fault:
    """A fault of the next calls.

    `times`: how many calls it meets (-1: all); `share`: the part of the possible calls it meets.
    `path`: only at this path; `keyed`: only calls with an idempotency key; `several`: only calls
    with more than one email. `accepts`: the emails are sent, and only the answer is wrong.
    `reset`: the connection breaks instead of an answer.
    `delay`: seconds before the answer, after the emails are accepted; `drip`: seconds between the
    bytes of its body.
    `name`: Resend's name of the error; without one, `body` is sent unchanged, as `content_type`.
    """

    status: int = 500
    name: str | None = None
    message: str = "a fault on order"
    body: str = HTML
    content_type: str = "text/html"
    headers: dict[str, str] = field(default_factory=dict)
    accepts: bool = False
    reset: bool = False
    delay: float = 0.0
    drip: float = 0.0
    times: int = 1
    share: float = 1.0
    path: str | None = None
    keyed: bool = False
    several: bool = False


class Refused(Exception):
    """An error by one of Resend's names."""

    def __init__(self, status: int, name: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.name, self.message = status, name, message
        self.headers = {key.replace("_", "-"): value for key, value in headers.items()}

    def reply(self) -> Reply:
        reported = {"statusCode": self.status, "name": self.name, "message": self.message}
        return Reply(self.status, json.dumps(reported).encode(), headers=self.headers)


@dataclass
class Settings:
    """The settings of the account. A field that is None sets no limit.

    `keys`: valid API keys; `sending_only`: those of them that may only send.
    `unverified`: from-domains that are refused. `rate`: requests per second.
    `wrong_key`: as documented, or as the API really answers ("validation_error").
    `usage`: whether GET /usage exists. `ahead`: seconds by which its clock is ahead.
    `latency`: seconds that sending takes. `largest`: bytes that a call may have.
    `seed`: of the faults that meet a share of the calls. `suppressions`: its list: email, origin,
    created_at.
    """

    keys: list[str] = field(default_factory=lambda: [KEY])
    sending_only: list[str] = field(default_factory=list)
    suspended: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    rate: float | None = None
    daily: int | None = None
    monthly: int | None = None
    wrong_key: str = "invalid_api_key"
    usage: bool = False
    ahead: float = 0.0
    latency: float = 0.0
    seed: int = 0
    suppressions: list[dict[str, Any]] = field(default_factory=list)
    largest: int = 40_000_000


def check(mail: dict[str, Any], unverified: Container[str]) -> None:
    """Refuse an email as Resend does."""
    for name in ("from", "to", "subject"):
        if mail.get(name) in (None, "", []):
            raise Refused(422, "missing_required_field", f"Missing `{name}` field.")
    if not (mail.get("html") or mail.get("text")):
        raise Refused(422, "validation_error", "Missing `html` or `text` field.")
    _check_sender(mail["from"].rpartition("<")[2].rstrip(">"), unverified)
    for each in mail["to"]:
        if not ADDRESS.fullmatch(each) or each.startswith("invalid@"):
            raise Refused(422, "validation_error", f"Invalid `to` field: {each}")
    for tag in mail.get("tags") or ():
        if not (TAG.fullmatch(tag["name"]) and TAG.fullmatch(tag["value"])):
            raise Refused(422, "validation_error", "Tags should only contain ASCII letters")


def _check_sender(sender: str, unverified: Container[str]) -> None:
    if not ADDRESS.fullmatch(sender):
        raise Refused(422, "invalid_from_address", "Invalid `from` field.")
    domain = sender.rpartition("@")[2]
    if domain in unverified:
        raise Refused(403, "validation_error", f"The {domain} domain is not verified.")
