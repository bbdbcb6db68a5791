"""The connection to Resend: pooled, with deadlines, and exact about how far a call got.

Nothing here tries twice by itself. A connection that the other side has closed while it was idle
is noticed before use; one that breaks later is reported, because the request may have arrived.
"""

from __future__ import annotations

import json as json_module
from dataclasses import dataclass
from functools import cached_property
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

import requests
import urllib3
import urllib3.exceptions
from requests.adapters import HTTPAdapter

from mailgres.providers.deadline import watched, within
from mailgres.providers.reached import causes, never_connected

if TYPE_CHECKING:
    from collections.abc import Mapping

_LARGEST_ANSWER = 8 * 1024 * 1024
_CHUNK = 65536
_LONGEST_CONNECT = 10.0
_LATE = "the answer does not end"

_NO_ADDRESS = (
    requests.ConnectTimeout,
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidSchema,
    requests.exceptions.MissingSchema,
)
"""What requests itself raises before a request is on its way."""


class Unreached(Exception):
    """No connection came about, so nothing was sent."""


class NoAnswer(Exception):
    """The request left or may have left, and no whole answer came back."""


class Malformed(Exception):
    """The request cannot be written down, so nothing was sent."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - it is whatever they sent
        """The body if it is JSON, else None."""
        try:
            return json_module.loads(self.body)
        except (ValueError, RecursionError):
            return None


class Account:
    """An API key, its address, and connections of its own."""

    def __init__(
        self,
        api_key: str,
        api_url: str,
        *,
        timeout: float,
        connections: int,
    ) -> None:
        self.url = api_url.rstrip("/")
        self._timeout = timeout
        self._session = requests.Session()
        adapter = _Adapter(pool_connections=1, pool_maxsize=connections, max_retries=0)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)
        # Authentication of our own keeps requests from taking some out of a .netrc.
        self._auth = _Bearer(api_key)
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def call(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        json: Any,  # noqa: ANN401 - it is whatever the SDK sends
    ) -> Answer:
        """Make one call; raise Unreached, NoAnswer or Malformed if there is no answer.

        It has the timeout, and before that some seconds to connect, however the answer comes.
        """
        request = requests.Request(
            method, self.url + path, headers=dict(headers), json=json, auth=self._auth
        )
        try:
            prepared = self._session.prepare_request(request)
            settings = self._settings
        except (requests.RequestException, ValueError, TypeError) as error:
            raise _before_sending(error) from error
        try:
            return self._send(prepared, settings)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise _while_sending(error) from error

    def close(self) -> None:
        """Close the connections that are idle."""
        self._session.close()

    @cached_property
    def _settings(self) -> Mapping[str, Any]:
        """Proxies and certificates, as the environment has them: looked up once, it takes long."""
        return self._session.merge_environment_settings(
            self.url, {}, stream=True, verify=None, cert=None
        )

    def _send(self, prepared: requests.PreparedRequest, settings: Mapping[str, Any]) -> Answer:
        connecting = min(self._timeout, _LONGEST_CONNECT)
        with within(connecting + self._timeout) as watch:
            try:
                with self._session.send(
                    prepared, timeout=(connecting, self._timeout), allow_redirects=False, **settings
                ) as response:
                    kept = {name.lower(): value for name, value in response.headers.items()}
                    answer = Answer(response.status_code, kept, _body(response.raw))
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                if watch.expired:
                    raise NoAnswer(_LATE) from error
                raise
            if watch.expired:  # it was cut off, and does not always look like that
                raise NoAnswer(_LATE)
            return answer


def _body(raw: urllib3.BaseHTTPResponse) -> bytes:
    """Read it all, if that is no more than any answer is."""
    parts = bytearray()
    while part := raw.read1(_CHUNK, decode_content=True):
        parts += part
        if len(parts) > _LARGEST_ANSWER:
            raise urllib3.exceptions.HTTPError(_LATE)
    return bytes(parts)


class _Adapter(HTTPAdapter):
    """Its connections, also those through a proxy, end with the time of their call."""

    def init_poolmanager(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - theirs
        super().init_poolmanager(*args, **more)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **more: Any) -> urllib3.ProxyManager:  # noqa: ANN401
        manager: urllib3.ProxyManager = super().proxy_manager_for(proxy, **more)
        manager.pool_classes_by_scheme = _POOLS
        return manager


_POOLS = {
    "http": watched(urllib3.HTTPConnectionPool),
    "https": watched(urllib3.HTTPSConnectionPool),
}


@dataclass(slots=True)
class HttpCall:
    """A call on its way through the SDK: for whom it is, where it goes, what came of it."""

    account: Account
    path: str
    answer: Answer | None = None
    fault: Exception | None = None


class _Bearer(requests.auth.AuthBase):
    """Puts the account's key where the SDK put that of its module."""

    def __init__(self, api_key: str) -> None:
        self._header = f"Bearer {api_key}"

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self._header
        return request


def _before_sending(error: Exception) -> Unreached | Malformed:
    """What kept a request from being made: where it goes, or what is in it."""
    if isinstance(error, _NO_ADDRESS) or never_connected(error):
        return Unreached(type(error).__name__)
    return Malformed(type(error).__name__)


def _while_sending(error: Exception) -> Unreached | NoAnswer:
    """Tell how far the call got. In doubt, it may have arrived."""
    reason = type(list(causes(error))[-1]).__name__
    if isinstance(error, _NO_ADDRESS) or never_connected(error):
        return Unreached(reason)
    return NoAnswer(reason)
