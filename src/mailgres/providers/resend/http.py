"""The connection to Resend: pooled, with deadlines, and exact about how far a call got.

Nothing here is retried. An idle connection that the server has closed is replaced before use; a
connection that breaks later is reported, because the request may have arrived.
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
"""Exceptions of requests itself before a request is sent."""


class NoConnection(Exception):
    """No connection was made, so nothing was sent."""


class NoAnswer(Exception):
    """The request was sent, or may have been, and no complete answer came back."""


class Malformed(Exception):
    """The request cannot be written, so nothing was sent."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - it is whatever they sent
        """Return the body if it is JSON, else None."""
        try:
            return json_module.loads(self.body)
        except (ValueError, RecursionError):
            return None


class Account:
    """An API key, the URL of the API, and a connection pool."""

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
        # Setting auth prevents requests from using a .netrc file.
        self._auth = _Bearer(api_key)
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def call(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        json: Any,  # noqa: ANN401 - it is whatever the SDK sends
    ) -> Answer:
        """Make one call; raise NoConnection, NoAnswer or Malformed if there is no answer.

        The call may take some seconds to connect and then the timeout, even if the answer is slow.
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
        """Return proxies and certificates of the environment; read once, because it is slow."""
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
            if watch.expired:  # at the deadline, other exceptions are possible
                raise NoAnswer(_LATE)
            return answer


def _body(raw: urllib3.BaseHTTPResponse) -> bytes:
    """Read the whole answer, unless it is too large."""
    parts = bytearray()
    while part := raw.read1(_CHUNK, decode_content=True):
        parts += part
        if len(parts) > _LARGEST_ANSWER:
            raise urllib3.exceptions.HTTPError(_LATE)
    return bytes(parts)


class _Adapter(HTTPAdapter):
    """An adapter whose connections, also through a proxy, end at the deadline of their call."""

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
    """A call through the SDK: its account, its path and its result."""

    account: Account
    path: str
    answer: Answer | None = None
    fault: Exception | None = None


class _Bearer(requests.auth.AuthBase):
    """Replaces the API key of the SDK's module with that of the account."""

    def __init__(self, api_key: str) -> None:
        self._header = f"Bearer {api_key}"

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self._header
        return request


def _before_sending(error: Exception) -> NoConnection | Malformed:
    """Return the error that prevented a request: of its URL or of its content."""
    if isinstance(error, _NO_ADDRESS) or never_connected(error):
        return NoConnection(type(error).__name__)
    return Malformed(type(error).__name__)


def _while_sending(error: Exception) -> NoConnection | NoAnswer:
    """Return how far the call got. In doubt, it may have arrived."""
    reason = type(list(causes(error))[-1]).__name__
    if isinstance(error, _NO_ADDRESS) or never_connected(error):
        return NoConnection(reason)
    return NoAnswer(reason)
