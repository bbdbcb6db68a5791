"""Sends through Amazon SES, with version 2 of its API.

SES has no idempotency keys, so a call is made once: botocore's own retries are off, because a retry
after a read timeout could send the email twice.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, cast

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    ProxyConnectionError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

from mailgres.model import LONGEST, Limits, Result
from mailgres.providers.base import Capabilities
from mailgres.providers.deadline import watched, within
from mailgres.providers.faults import UNKNOWN, classify
from mailgres.providers.prepare import prepare
from mailgres.providers.reached import never_connected
from mailgres.providers.retry_after import retry_after, server_time
from mailgres.providers.ses.faults import NO_MESSAGE_ID, NO_PROXY, NO_SUCH_REGION, SES_RULES
from mailgres.providers.ses.message import as_params

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mailgres.model import Message

log = logging.getLogger(__name__)

LIMITS_CACHE_SECONDS = 300.0
"""Seconds for which the account's limits are remembered."""

LIMITS_RETRY_SECONDS = 60.0
"""Seconds until the next request for the limits after a failure."""

_CONNECT_SECONDS = 10.0
_ID = re.compile(r"[\x21-\x7e]{1,200}")
_KNOWN = frozenset(rule.code for rule in SES_RULES if rule.code)
_FAULTS = (ClientError, BotoCoreError, ResponseParserError)


class Client(Protocol):
    """The methods of boto3's client that are used here; boto3 has no types."""

    def send_email(self, **params: object) -> dict[str, Any]:
        """Send an email."""
        ...

    def get_account(self) -> dict[str, Any]:
        """Return the state of the account."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class SesProvider:
    """Sends through one AWS account in one region; credentials as for AWS's tools."""

    kind = "ses"
    capabilities = Capabilities(batch_size=1, idempotent=False)

    def __init__(
        self,
        region: str | None = None,
        *,
        name: str = "ses",
        configuration_set: str | None = None,
        profile: str | None = None,
        endpoint_url: str | None = None,
        timeout: float = 30.0,
        connections: int = 10,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._region = region
        self._configuration_set = configuration_set
        self._profile = profile
        self._endpoint_url = endpoint_url
        # A call may take some seconds to connect and then the timeout, even if the answer is slow.
        self._seconds = timeout + min(timeout, _CONNECT_SECONDS)
        self._config = Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=min(timeout, _CONNECT_SECONDS),
            read_timeout=timeout,
            max_pool_connections=connections,
            # Validation would be a sixth of botocore's cost per call, and our parameters have the
            # right types. A constant user agent is not composed for every call.
            parameter_validation=False,
            user_agent=f"mailgres boto3/{boto3.__version__}",
        )
        self._clock = clock
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._made: Client | None = None
        self._limits: Limits | None = None
        self._ask_at = 0.0

    def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Send the messages, one call each."""
        return [self._send(message) for message in messages]

    def limits(self) -> Limits | None:
        """Return the limits of GetAccount, which one thread requests every few minutes, or None."""
        if self._clock() >= self._ask_at and self._asking.acquire(blocking=False):
            try:
                self._ask()
            finally:
                self._asking.release()
        return self._limits

    def check(self) -> Result:
        """Request the account, which needs valid credentials and an existing region."""
        try:
            account = self._call(lambda client: client.get_account())
        except ClientError as error:
            if _code(error) in {"AccessDeniedException", "AccessDenied"}:
                # AWS knows the key; it may be allowed only to send, which is enough.
                return Result(
                    "sent",
                    untried="AWS knows them, but they lack ses:GetAccount; the first email shows"
                    " whether they may send",
                )
            return self._fault(error)
        except _FAULTS as error:
            return self._fault(error)
        if account.get("SendingEnabled") is False or account.get("EnforcementStatus") == "SHUTDOWN":
            return _result("SendingPausedException", None, "sending is paused for this account")
        return Result("sent")

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            client, self._made = self._made, None
        if client is not None:
            client.close()

    def _send(self, message: Message) -> Result:
        params = prepare(lambda each: as_params(each, self._configuration_set), message)
        if isinstance(params, Result):
            return params
        try:
            answer = self._call(lambda client: client.send_email(**params))
        except _FAULTS as error:
            return self._fault(error)
        if not _ID.fullmatch(str(answer.get("MessageId") or "")):
            return _result(NO_MESSAGE_ID, None, "the answer has no message id")
        return Result("sent", answer["MessageId"])

    def _call(self, ask: Callable[[Client], dict[str, Any]]) -> dict[str, Any]:
        """Make a call; whatever it raises at its deadline is a timeout."""
        client = self._client()
        with within(self._seconds) as watch:
            try:
                answer = ask(client)
            except _FAULTS as error:
                if not watch.expired:
                    raise
                late = error
            else:
                if not watch.expired:
                    return answer
                late = None
        raise ReadTimeoutError(endpoint_url="SES", error="the answer does not end") from late

    def _client(self) -> Client:
        """Return the client, which threads share; only one thread creates it."""
        with self._lock:
            if self._made is None:
                made = boto3.session.Session(profile_name=self._profile).client(
                    "sesv2",
                    region_name=self._region,
                    endpoint_url=self._endpoint_url,
                    config=self._config,
                )
                _end_in_time(made)
                self._made = cast("Client", made)
            return self._made

    def _ask(self) -> None:
        try:
            quota = self._call(lambda client: client.get_account())["SendQuota"]
            self._limits = _limits(quota)
            self._ask_at = self._clock() + LIMITS_CACHE_SECONDS
        except (*_FAULTS, KeyError, TypeError, ValueError) as error:
            # Sending works without the limits: SES refuses calls that exceed them.
            self._ask_at = self._clock() + LIMITS_RETRY_SECONDS
            log.warning(
                "the limits of SES could not be read",
                extra={"action": "limits", "provider": self.name, "code": _code(error)},
            )

    def _fault(self, error: Exception) -> Result:
        if isinstance(error, EndpointConnectionError) and self._is_unknown_region():
            return _result(
                NO_SUCH_REGION,
                None,
                f"there is no SES in the region {self._region}: set the region of {self.name},"
                " or install a newer boto3",
            )
        if not isinstance(error, ClientError):
            return _result(_code(error), None, str(error), explained=True)
        about = error.response.get("ResponseMetadata", {})
        text = str(error.response.get("Error", {}).get("Message") or error)
        result = _result(_code(error), about.get("HTTPStatusCode"), text)
        headers = about.get("HTTPHeaders", {})
        now = server_time(headers, datetime.now(UTC))
        return replace(result, retry_after=retry_after(headers.get("retry-after"), now))

    def _is_unknown_region(self) -> bool:
        """Return whether a connection failed probably because the region does not exist."""
        if self._endpoint_url or not self._region:
            return False
        session = boto3.session.Session()
        return not any(
            self._region in session.get_available_regions("sesv2", partition_name=partition)
            for partition in session.get_available_partitions()
        )


def _end_in_time(client: Any) -> None:  # noqa: ANN401 - boto3 has no types
    """Let the client's connections, also through a proxy, end at the deadline of their call.

    This uses internals of botocore; if they change, only the deadline is lost.
    """
    http = client._endpoint.http_session  # noqa: SLF001
    pools = getattr(http, "_pool_classes_by_scheme", {})
    pools.update({scheme: watched(pool) for scheme, pool in pools.items()})


def _code(error: Exception) -> str:
    """Return the error code of the API, or the nearest class of botocore that has a rule."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code") or "unknown")
    if isinstance(error, ProxyConnectionError) and never_connected(error.kwargs["error"]):
        return NO_PROXY
    names = [each.__name__ for each in type(error).__mro__]
    return next((name for name in names if name in _KNOWN), names[0])


def _result(code: str, status: int | None, text: str, *, explained: bool = False) -> Result:
    """Return the result of a fault; with `explained`, its meaning is added to the text."""
    code, text = code[: LONGEST["code"]], text[: LONGEST["message"]]
    rule = classify(SES_RULES, status=status, code=code, text=text)
    if rule is UNKNOWN:
        log.warning(
            "unknown fault of SES; treated as transient",
            extra={"action": "classify", "code": code, "status": status},
        )
    return Result(
        rule.verdict,
        code=code,
        message=f"{rule.meaning} ({text})" if explained else text,
        detail=f"{status or ''} {code}: {text}".strip(),
        account=rule.scope == "account",
        pinned=rule.pinned,
        suppress=rule.suppress,
    )


def _limits(quota: dict[str, float]) -> Limits:
    """Return the daily quota; SES uses -1 for none."""
    daily, rate = int(quota["Max24HourSend"]), float(quota["MaxSendRate"])
    return Limits(
        calls_per_second=rate if rate > 0 else None,
        daily=daily if daily >= 0 else None,
        sent_today=int(quota["SentLast24Hours"]),
    )
