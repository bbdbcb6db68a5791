"""The trigger: what it does, who may call it, and what is refused, over real sockets."""

from __future__ import annotations

import ctypes
import json
import platform
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from doubles.resend import Fault, ResendDouble
from e2e.harness import E2eHarness, accepted, once_each
from mailgres.http.app import Sampler
from service.harness import BEARER, PATH, SECRET, Answer, Site, read, request, site
from worker.harness import until

SYS_TGKILL = 131 if platform.machine() == "aarch64" else 234
"""The system call that sends a signal to one thread; Linux has one number per architecture."""
SUMMARY = {"claimed", "sent", "retried", "dead", "lost", "given_back", "refused", "seconds"}


def untouched(harness: E2eHarness) -> bool:
    return harness.statuses() == {"pending": 1}


def test_the_trigger_sends_due_emails(
    harness: E2eHarness, resend: ResendDouble, service: Site
) -> None:
    emails = [harness.enqueue() for _ in range(3)]
    answer = service.trigger()
    assert answer.status == 200
    assert answer.json.keys() == SUMMARY
    assert (answer.json["claimed"], answer.json["sent"]) == (3, 3)
    assert accepted(resend) == once_each(emails)
    assert service.trigger({"time": "now"}).json["claimed"] == 0  # as pg_cron's examples send
    with harness.script("process") as once:
        assert once.summary().keys() == SUMMARY


@pytest.mark.parametrize(("size", "claimed"), [(1, 1), (2, 2), (1000, 3), (None, 3)])
def test_the_trigger_claims_at_most_the_batch_size(
    harness: E2eHarness, service: Site, size: int | None, claimed: int
) -> None:
    for _ in range(3):
        harness.enqueue()
    assert service.trigger({"batchSize": size}).json["claimed"] == claimed


BAD_BEARERS = {
    "missing": [],
    "empty": ["Authorization: "],
    "no token": ["Authorization: Bearer"],
    "wrong": ["Authorization: Bearer a-secret-for-the-test5"],
    "a part": [f"Authorization: Bearer {SECRET[:-1]}"],
    "more": [f"Authorization: Bearer {SECRET}x"],
    "overlong": ["Authorization: Bearer " + "x" * 8000],
    "not ASCII": ["Authorization: Bearer " + "sécrèt\xff" * 4],
    "another scheme": [f"Authorization: Basic {SECRET}"],
    "no scheme": [f"Authorization: {SECRET}"],
    "twice": [BEARER, BEARER],
    "another header": [f"apikey: {SECRET}"],
}


def test_the_trigger_refuses_bad_tokens(harness: E2eHarness, service: Site) -> None:
    harness.enqueue()
    for name, headers in BAD_BEARERS.items():
        answer = service.ask("POST", PATH, *headers)
        assert answer.status == 401, name
        assert answer.json["error"] == "the bearer token is missing or wrong"
        assert "serve_secret" in answer.json["hint"]
        assert answer.headers["www-authenticate"] == "Bearer"
    too_long = service.ask("POST", PATH, "Authorization: Bearer " + "x" * 200_000)
    assert too_long.status in {0, 400, 431}
    assert untouched(harness)
    assert service.trigger().status == 200


BAD_BODIES: dict[str, bytes] = {
    "zero": b'{"batchSize": 0}',
    "negative": b'{"batchSize": -1}',
    "too many": b'{"batchSize": 1001}',
    "huge": b'{"batchSize": 1' + b"0" * 5000 + b"}",
    "a word": b'{"batchSize": "ten"}',
    "digits": b'{"batchSize": "10"}',
    "true": b'{"batchSize": true}',
    "a fraction": b'{"batchSize": 1.5}',
    "a whole fraction": b'{"batchSize": 10.0}',
    "not a number": b'{"batchSize": NaN}',
    "a list": b'{"batchSize": [10]}',
    "not JSON": b'{"batchSize": 10',
    "not text": b"\xff\xfe\x00",
    "an array": b"[10]",
    "a number": b"10",
    "deep": b"[" * 16_000,
}


def test_the_trigger_refuses_bad_bodies(harness: E2eHarness, service: Site) -> None:
    harness.enqueue()
    for name, body in BAD_BODIES.items():
        answer = service.ask("POST", PATH, BEARER, body=body)
        assert answer.status == 400, (name, answer)
        assert answer.json.keys() == {"error", "hint"}
    assert untouched(harness)


def test_the_trigger_refuses_large_bodies(harness: E2eHarness, service: Site) -> None:
    """Refused when it is known to be too large, however it comes, and kept nowhere."""
    harness.enqueue()
    ten_megabytes = b'{"x": "' + b"x" * 10 * 1024 * 1024 + b'"}'
    answer = service.ask("POST", PATH, BEARER, body=ten_megabytes)
    assert (answer.status, answer.json["error"]) == (413, "the body is too large")

    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n{BEARER}\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    answer = service.raw(head.encode(), *[chunk] * 160, b"0\r\n\r\n")
    assert (answer.status, answer.json["error"]) == (413, "the body is too large")

    # Without the secret nobody reads it at all.
    assert service.ask("POST", PATH, body=ten_megabytes).status == 401
    announced = request("POST", PATH, BEARER).replace(b"Length: 0", b"Length: 9999999")
    assert service.raw(announced).status == 413
    assert untouched(harness)


def test_slow_callers_of_the_trigger_hold_no_connection(harness: E2eHarness, service: Site) -> None:
    """A head or body that never ends holds no connection and delays no other caller."""
    harness.enqueue()
    half = request("POST", PATH, BEARER, body=b'{"batchSize": 10}')[:-5]
    with service.open() as slow_body, service.open() as slow_head, service.open() as silent:
        service.send(slow_body, half)
        service.send(slow_head, half[:30])
        assert untouched(harness)
        assert service.get("/healthz").status == 200
        answer = read(slow_body)
        assert (answer.status, answer.json["error"]) == (408, "the body did not arrive in time")
        assert read(slow_head).status == 0
        assert read(silent).status == 0
    assert untouched(harness)
    assert service.trigger().json["sent"] == 1


def test_calls_at_once_never_send_twice(
    harness: E2eHarness, resend: ResendDouble, service: Site
) -> None:
    resend.set(latency=0.05)
    emails = [harness.enqueue() for _ in range(60)]
    answers: list[Answer] = []
    with ThreadPoolExecutor(8) as callers:
        while harness.statuses().get("pending"):
            answers += callers.map(lambda _: service.trigger({"batchSize": 7}), range(8))
    assert accepted(resend) == once_each(emails)
    assert {answer.status for answer in answers} <= {200, 429}
    assert sum(answer.json["sent"] for answer in answers if answer.status == 200) == 60


def test_too_many_calls_at_once_get_429(
    harness: E2eHarness, resend: ResendDouble, service: Site
) -> None:
    """Four run at once; a further caller gets 429 immediately, and nothing runs for it."""
    emails = [harness.enqueue(priority=1) for _ in range(4)]
    with ThreadPoolExecutor(4) as callers, resend.holding():
        under_way = [callers.submit(service.trigger, {"batchSize": 1}) for _ in emails]
        until(lambda: harness.statuses() == {"sending": 4}, "four calls are under way")
        refused = service.trigger()
        assert (refused.status, refused.headers["retry-after"]) == (429, "5")
        resend.release()
        assert [call.result().status for call in under_way] == [200] * 4
    assert accepted(resend) == once_each(emails)
    assert service.trigger().status == 200


def test_a_run_goes_on_when_its_caller_disconnects(
    harness: E2eHarness, resend: ResendDouble, service: Site
) -> None:
    """pg_net hangs up after five seconds: the run goes on, and its outcomes are written."""
    emails = [harness.enqueue() for _ in range(2)]
    with resend.holding(), service.open() as connection:
        service.send(connection, request("POST", PATH, BEARER))
        until(lambda: harness.statuses() == {"sending": 2}, "they are under way")
    until(lambda: harness.statuses() == {"sent": 2}, "they are sent")
    assert accepted(resend) == once_each(emails)
    assert service.get("/healthz").status == 200


def test_a_stopping_service_answers_the_runs_under_way(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    """Runs under way are finished and answered; emails without a call are given back."""
    harness.set(concurrency="1", batch_size="5")
    emails = [harness.enqueue(priority=1) for _ in range(5)]
    with site(harness) as service, ThreadPoolExecutor(1) as callers, resend.holding():
        call = callers.submit(service.trigger)
        until(lambda: harness.statuses() == {"sending": 5}, "they are claimed")
        service.process.popen.send_signal(signal.SIGTERM)
        until(lambda: harness.statuses().get("pending"), "emails without a call are given back")
        resend.release()
        answer = call.result()
        assert service.process.popen.wait(60) == 0, service.process.log
    assert answer.status == 200
    assert answer.json["sent"] + answer.json["given_back"] == 5
    assert answer.json["given_back"] > 0
    assert harness.statuses() == {"sent": answer.json["sent"], "pending": answer.json["given_back"]}
    assert len(accepted(resend)) == answer.json["sent"] <= len(emails)


@pytest.mark.skipif(sys.platform != "linux", reason="sends a signal to one thread")
def test_a_signal_that_reaches_another_thread_stops_the_service(harness: E2eHarness) -> None:
    """The main thread, which would run a handler, does not wake up then."""
    with site(harness) as service:
        pid = service.process.popen.pid
        threads = (int(each.name) for each in Path(f"/proc/{pid}/task").iterdir())
        other = next(each for each in threads if each != pid)
        assert ctypes.CDLL(None).syscall(SYS_TGKILL, pid, other, signal.SIGTERM) == 0
        assert service.process.popen.wait(60) == 0, service.process.log


def test_the_trigger_counts_and_logs_dead_letters(
    harness: E2eHarness, resend: ResendDouble, service: Site
) -> None:
    """The attempt is logged without the email."""
    resend.add_faults(Fault(status=422, name="validation_error", message="no ana@example.com here"))
    harness.enqueue(tenant_id="acme")
    assert service.trigger().json["dead"] == 1
    until(lambda: PATH in service.process.log.rpartition("\n")[0], "the request is logged")
    lines = [json.loads(line) for line in service.process.log.splitlines()]
    (reported,) = [line for line in lines if line.get("event") == "JobFailed"]
    assert reported["companyId"] == "acme"
    assert reported["errorReason"].endswith("Resend: no <address> here")
    (asked,) = [line for line in lines if line.get("path") == PATH]
    assert (asked["status"], asked["level"]) == (200, "info")


def test_a_run_does_not_say_that_the_service_stops(harness: E2eHarness, service: Site) -> None:
    harness.enqueue()
    assert service.trigger().json["sent"] == 1
    until(lambda: PATH in service.process.log.rpartition("\n")[0], "the request is logged")
    assert "stopping" not in service.process.log


def test_refusals_are_sampled_in_the_log(service: Site) -> None:
    """The first of a kind is logged, and the others of that minute are counted."""
    for _ in range(20):
        assert service.ask("POST", PATH).status == 401
    assert service.get("/nowhere").status == 404
    until(lambda: "unknown" in service.process.log.rpartition("\n")[0], "the last one is logged")
    lines = [json.loads(line) for line in service.process.log.splitlines()]
    assert [line["status"] for line in lines if "status" in line] == [401, 404]


@pytest.mark.parametrize("secret", ["", f"{BEARER}\r\n"], ids=["a stranger", "a caller"])
@pytest.mark.parametrize("rest", [b"ZZZ\r\n", b"5\r\nab"], ids=["malformed", "broken off"])
@pytest.mark.parametrize("later", [False, True])
def test_a_body_that_is_malformed_or_broken_off_is_no_fault_of_the_service(
    service: Site, secret: str, rest: bytes, *, later: bool
) -> None:
    """A stranger could fill the log with errors of ours."""
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n{secret}Transfer-Encoding: chunked\r\n\r\n"
    with service.open() as connection:
        connection.sendall(head.encode() if later else head.encode() + rest)
        if later:
            time.sleep(0.2)
            connection.sendall(rest)
        connection.shutdown(socket.SHUT_WR)
        b"".join(iter(lambda: connection.recv(4096), b""))
    service.get("/unknown")
    until(lambda: '"unknown"' in service.process.log.rpartition("\n")[0], "the next is logged")
    lines = [json.loads(line) for line in service.process.log.splitlines()]
    assert [line for line in lines if line["level"] == "error"] == []


def test_sampled_log_lines_count_what_was_left_out() -> None:
    now = 0.0
    sampler = Sampler(lambda: now)
    assert sampler.take(PATH, 429) == 0
    assert [sampler.take(PATH, 429) for _ in range(5)] == [None] * 5
    assert sampler.take(PATH, 401) == 0, "another kind"
    now = 61.0
    assert sampler.take(PATH, 429) == 5
    now = 122.0
    assert sampler.take(PATH, 429) == 0
