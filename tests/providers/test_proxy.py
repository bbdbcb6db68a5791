"""Behind a proxy, the outcome of a call is known as exactly as without one.

urllib3 says "unable to connect to proxy" also of a connection that broke after the request had left
on it. Trusting that would send the email a second time.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from doubles import resend as resend_double
from doubles import ses as ses_double
from doubles.http_server import Answering, Reply, serving
from mailgres.providers.base import Provider
from mailgres.providers.resend.provider import ResendProvider
from mailgres.providers.ses.provider import SesProvider
from providers.mails import mail
from providers.test_deadlines import TIMEOUT_SECONDS, dripping

ELSEWHERE = "https://mail.invalid"
Opened = Callable[[str], Provider]


def resend(url: str, timeout: float = 10.0) -> Provider:
    return ResendProvider(resend_double.KEY, url, timeout=timeout)


def ses(url: str, timeout: float = 10.0) -> Provider:
    return SesProvider("eu-west-1", endpoint_url=url, timeout=timeout)


def forward(method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
    """Pass a request on to where it goes; what is answered there."""
    url = urlsplit(target)
    upstream = http.client.HTTPConnection(url.netloc, timeout=10)
    try:
        upstream.request(method, url.path, body, headers)
        return upstream.getresponse().read()
    finally:
        upstream.close()


def passing(*request: Any) -> Reply:
    """All goes well."""
    return Reply(200, forward(*request))


def resetting(*request: Any) -> Reply:
    """The request arrives, and the connection breaks."""
    forward(*request)
    return Reply(0, b"", reset=True)


def hanging_up(*request: Any) -> Reply:
    """The request arrives, and the connection ends before a word of the answer."""
    forward(*request)
    raise OSError


def leading_nowhere(*_: Any) -> Reply:
    """It does not connect to anybody."""
    return Reply(403, b"")


@pytest.fixture(params=["resend", "ses"])
def service(request: pytest.FixtureRequest) -> Iterator[tuple[Opened, Any]]:
    """Yield how to reach a service, and its double."""
    if request.param == "resend":
        with resend_double.serve(resend_double.ResendDouble()) as running:
            yield resend, running
    else:
        with ses_double.serve(ses_double.SesDouble()) as double:
            yield ses, double


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ses_double.environ("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL_SESV2", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def sent_through(url: str, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Send an email through this proxy: the verdict, and the code."""
    monkeypatch.setenv("http_proxy", url)
    monkeypatch.setenv("https_proxy", url)
    (result,) = provider.send([mail()])
    provider.close()
    return result.verdict, result.code or ""


@pytest.mark.parametrize(
    ("proxy", "verdict"),
    [(passing, "sent"), (resetting, "ambiguous"), (hanging_up, "ambiguous")],
)
def test_a_request_that_reached_the_provider_through_a_proxy_is_classified(
    service: tuple[Opened, Any], proxy: Answering, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, double = service
    with serving(proxy) as url:
        assert sent_through(url, opened(double.url), monkeypatch)[0] == verdict
    assert len(double.accepted()) == 1


NOTHING_SENT = [(resend, "no_connection"), (ses, "no_proxy_connection")]


@pytest.mark.parametrize("target", ["http://mail.invalid", ELSEWHERE])
@pytest.mark.parametrize(("opened", "code"), NOTHING_SENT)
def test_an_unreachable_proxy_means_that_no_call_was_made(
    opened: Opened, code: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    reported = sent_through(f"http://127.0.0.1:{port}", opened(target), monkeypatch)
    assert reported == ("transient", code)


@pytest.mark.parametrize(("opened", "code"), NOTHING_SENT)
def test_a_proxy_that_refuses_the_tunnel_means_that_no_call_was_made(
    opened: Opened, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy is there, and says that it leads nowhere."""
    with serving(leading_nowhere) as url:
        assert sent_through(url, opened(ELSEWHERE), monkeypatch) == ("transient", code)


@pytest.mark.parametrize(
    ("opened", "code"), [(resend, "no_answer"), (ses, "ReadTimeoutError")], ids=["resend", "ses"]
)
def test_a_call_that_only_gets_interim_answers_ends_at_its_deadline(
    opened: Callable[[str, float], Provider], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interim answers never end: at its deadline the call ends without an answer."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    with dripping(interim, interim) as url:
        provider = opened("http://mail.invalid", TIMEOUT_SECONDS)
        assert sent_through(url, provider, monkeypatch) == ("ambiguous", code)
