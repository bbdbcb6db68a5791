"""The requests that a webhook of SNS causes: its certificates, and confirming a subscription.

Each is made only for an address that `sns` built, takes a few seconds at most, follows no redirect
and reads a bounded answer. A certificate is fetched once and kept; addresses that failed are not
asked again for a moment, so that a stranger cannot make this process flood Amazon.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import requests
import urllib3

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.x509 import Certificate

CONNECT_SECONDS, ANSWER_SECONDS = 3.0, 5.0
LARGEST_ANSWER = 64 * 1024
"""Largest answer in bytes; a certificate has about two thousand."""
MOST_CERTIFICATES = 20
RETRY_SECONDS = 10.0
"""Seconds for which a failure is remembered."""
_OK = 200


class Unavailable(Exception):
    """The certificate or the confirmation is not available now; SNS should call again."""


class _Known(NamedTuple):
    certificate: Certificate | None
    until: float


class Certificates:
    """Fetches certificates, each once. Several threads use it."""

    def __init__(
        self,
        fetch: Callable[[str], bytes] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch or get
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def at(self, url: str) -> Certificate:
        """Return the certificate at an address."""
        # Under the lock: of many messages at once, one fetches and the others wait for it.
        with self._lock:
            known = self._known.get(url)
            if known is None or (known.certificate is None and self._clock() >= known.until):
                known = self._load(url)
                self._known[url] = known
                while len(self._known) > MOST_CERTIFICATES:
                    self._known.popitem(last=False)
        if known.certificate is None:
            raise Unavailable("the certificate of SNS could not be fetched")
        return known.certificate

    def _load(self, url: str) -> _Known:
        from cryptography.x509 import load_pem_x509_certificate  # noqa: PLC0415 - an extra

        try:
            return _Known(load_pem_x509_certificate(self._fetch(url)), 0.0)
        except (Unavailable, ValueError):
            return _Known(None, self._clock() + RETRY_SECONDS)


def get(url: str) -> bytes:
    """Return what is at an address."""
    limits = (CONNECT_SECONDS, ANSWER_SECONDS)
    try:
        with requests.get(url, timeout=limits, allow_redirects=False, stream=True) as answer:
            body = bytes(answer.raw.read(LARGEST_ANSWER + 1, decode_content=True))
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError):
        raise Unavailable("SNS cannot be reached") from None
    if answer.status_code != _OK or len(body) > LARGEST_ANSWER:
        raise Unavailable(f"SNS answered with {answer.status_code}")
    return body
