"""Callers who are slow, many or long-winded keep nobody else from being answered."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from e2e.harness import E2eHarness
from service.harness import BEARER, PATH, Site, read, request, site

MANY = 150
KIB = 1024


@contextmanager
def crowd(service: Site, count: int, words: bytes) -> Iterator[list[socket.socket]]:
    """So many connections that have said this and no more."""
    with ExitStack() as stack:
        opened = [stack.enter_context(service.open()) for _ in range(count)]
        for connection in opened:
            service.send(connection, words)
        yield opened


@pytest.mark.parametrize(
    "words",
    [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"G"],
    ids=["silent", "half a head", "a letter"],
)
def test_health_is_answered_while_150_connections_are_slow(service: Site, words: bytes) -> None:
    with crowd(service, MANY, words):
        for _ in range(3):
            assert service.get("/healthz").status == 200
        assert service.get("/readyz").status == 200


def test_health_is_answered_while_150_refused_callers_go_on_sending(service: Site) -> None:
    """Each gets 401 at once, although its body never arrives."""
    wrong = request("POST", PATH, "Authorization: Bearer wrong")
    wrong = wrong.replace(b"Length: 0", b"Length: 16000")
    with crowd(service, MANY, wrong):
        assert service.get("/healthz").status == 200


def test_a_run_is_answered_while_150_connections_are_slow(
    harness: E2eHarness, service: Site
) -> None:
    harness.enqueue()
    with crowd(service, MANY, b"POST / HTTP/1.1\r\n"):
        assert service.trigger().json["sent"] == 1


def test_the_connections_that_waited_longest_make_room_for_new_ones(service: Site) -> None:
    with crowd(service, MANY, b"") as opened:
        assert service.get("/healthz").status == 200
        assert read(opened[0]).status == 0  # closed, without a word
        newest = opened[-1]
        service.send(newest, request("GET", "/healthz"))
        assert read(newest).status == 200


def head(size: int, ending: str = "\r\n") -> bytes:
    """The head of a request, of so many bytes."""
    start = f"GET /healthz HTTP/1.1{ending}Host: 127.0.0.1{ending}X-Long: "
    return (start + "x" * (size - len(start) - 2 * len(ending)) + 2 * ending).encode()


def test_a_head_of_16_kib_is_answered(service: Site) -> None:
    assert len(head(16 * KIB)) == 16 * KIB
    assert service.raw(head(16 * KIB)).status == 200


@pytest.mark.parametrize("size", [16 * KIB + 1, 20 * KIB, 60 * KIB, 500 * KIB])
@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_a_head_of_more_than_16_kib_is_refused(service: Site, size: int, ending: str) -> None:
    answer = service.raw(head(size, ending))
    assert (answer.status, answer.json["error"]) == (431, "the head of the request is too large")
    assert "16384" in answer.json["hint"]


def test_a_head_in_small_pieces_has_the_same_limit(service: Site) -> None:
    def pieces(size: int) -> list[bytes]:
        whole = head(size)
        return [whole[start : start + 700] for start in range(0, size, 700)]

    assert service.raw(*pieces(16 * KIB)).status == 200
    assert service.raw(*pieces(17 * KIB)).status == 431


def test_a_large_body_behind_a_small_head_is_no_large_head(service: Site) -> None:
    body = b'{"batchSize": 1' + b" " * (16 * KIB - 20) + b"}"
    assert service.ask("POST", PATH, BEARER, body=body).status == 200


def test_metrics_without_a_token_are_closed(service: Site) -> None:
    answer = service.get("/metrics")
    assert (answer.status, answer.json["error"]) == (401, "the metrics need a token")
    assert "MAILGRES_METRICS_TOKEN" in answer.json["hint"]
    assert "--open-metrics" in answer.json["hint"]


@pytest.mark.usefixtures("resend")
def test_open_metrics_are_read_by_this_machine_for_itself(harness: E2eHarness) -> None:
    with site(harness, "serve", "--open-metrics") as service:
        assert service.get("/metrics").status == 200
        assert service.get("/metrics", host="localhost:8725").status == 200
        assert service.get("/metrics", host="[::1]").status == 200
        for header in ("X-Forwarded-For: 10.0.0.1", "Forwarded: for=10.0.0.1", "Via: 1.1 proxy"):
            assert service.get("/metrics", header).status == 401
        assert service.get("/metrics", host="evil.example.com:8725").status == 401


@pytest.mark.usefixtures("resend")
@pytest.mark.parametrize("command", [("serve",), ("worker", "--serve")])
def test_metrics_are_not_opened_where_others_can_call(
    harness: E2eHarness, command: tuple[str, ...]
) -> None:
    harness.variables |= {"MAILGRES_SERVE_SECRET": "a-secret-for-the-tests"}
    address = ("--serve-host", "0.0.0.0", "--serve-port", "0")  # noqa: S104 - it does not start
    with harness.script(*command, "--open-metrics", *address) as process:
        assert process.popen.wait(60) == 1
        assert "--open-metrics is for a service that only this machine can reach" in process.log
