"""Health, readiness, what is not there, and how the service refuses to start."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from doubles.resend import ResendDouble
from e2e.harness import E2eHarness
from mailgres import resources
from mailgres.http.app import Service, make_app
from mailgres.http.ready import Ready
from mailgres.worker.store import Store
from service.harness import BEARER, PATH, SECRET, Site, site
from support.program import Program
from worker.harness import until
from worker.restartable import RestartableHarness


def test_a_running_service_is_healthy_and_ready(harness: E2eHarness, service: Site) -> None:
    assert service.get("/healthz").json["status"] == "ok"
    ready = service.get("/readyz")
    assert ready.status == 200
    assert ready.json == {"status": "ready", "schema": resources.schema_revision(), "lastRun": None}
    assert service.trigger().status == 200
    until(lambda: service.get("/readyz").json["lastRun"], "the run is logged")

    harness.run("UPDATE mailgres.schema_releases SET version = '0.0.1', digest = 'other'")
    until(lambda: service.get("/readyz").status == 503, "the schema is older")
    reported = service.get("/readyz").json
    assert reported["status"] == "not ready"
    revision = resources.schema_revision()
    assert reported["reason"] == f"the schema is not {revision}: run `mailgres migrate`"
    harness.run("UPDATE mailgres.schema_releases SET version = '99.0.0', works_since = '99.0.0'")
    newer = "the schema is of a newer version of mailgres"
    until(lambda: service.get("/readyz").json["reason"] == newer, "the schema is newer")
    assert service.get("/healthz").status == 200


def test_answers_of_the_service_end_with_a_line_break(service: Site) -> None:
    """For callers at a terminal; the length counts it."""
    for answer in (
        service.get("/healthz"), service.get("/readyz"), service.get("/metrics"),
        service.get("/nowhere"), service.trigger(), service.ask("POST", PATH),
    ):  # fmt: skip
        assert answer.body.endswith(b"\n")
        assert not answer.body.endswith(b"\n\n")
        assert int(answer.headers["content-length"]) == len(answer.body)


def test_without_a_database_the_service_lives_and_is_not_ready(
    tmp_path: Path, migrations: Path
) -> None:
    """It lives, says why it is not ready, refuses runs, and is ready again by itself."""
    with TemporaryDirectory(prefix="mailgres-tests-") as place:
        Path(place).chmod(0o711)
        restartable = RestartableHarness(Path(place), tmp_path, migrations)
        restartable.variables["MAILGRES_PROVIDERS"] = "capture"
        with site(restartable, "serve", "--open-metrics") as service:
            restartable.switch_off()
            until(lambda: service.get("/readyz").status == 503, "it notices")
            assert service.get("/readyz").json["reason"] == "the database does not answer"
            assert service.get("/healthz").status == 200
            metrics = service.get("/metrics")
            assert (metrics.status, b"mailgres_up 0.0" in metrics.body) == (200, True)
            refused = service.trigger()
            assert refused.status == 503
            assert "Traceback" not in refused.body.decode()
            restartable.switch_on()
            until(lambda: service.get("/readyz").status == 200, "it is back")
            assert service.trigger().status == 200
        restartable.switch_off()


def test_the_service_is_ready_while_every_connection_is_in_use(database_url: str) -> None:
    """Janitors and runs may have them all: that is no fault of the database."""
    store = Store(database_url, worker="here", connections=1)
    try:
        with store.connection():
            assert Ready(store).ask().reason is None
    finally:
        store.close()


def test_unknown_paths_and_methods_are_refused(service: Site) -> None:
    for method, path in (("GET", "/"), ("GET", "/healthz/"), ("POST", "/ana@example.com")):
        answer = service.ask(method, path)
        assert (answer.status, answer.json["error"]) == (404, "not found")
        assert PATH in answer.json["hint"]
    wrong = [("GET", PATH, "POST"), ("PUT", "/healthz", "GET, HEAD"), ("OPTIONS", PATH, "POST")]
    for method, path, allowed in wrong:
        answer = service.ask(method, path, BEARER)
        assert (answer.status, answer.json["error"]) == (405, "method not allowed")
        assert sorted(answer.headers["allow"].split(", ")) == sorted(allowed.split(", "))
    for path in ("/healthz", "/readyz"):
        with service.open() as connection:
            connection.sendall(f"HEAD {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            received = b"".join(iter(lambda: connection.recv(4096), b""))
        assert received.startswith(b"HTTP/1.1 200 OK")
        assert received.endswith(b"\r\n\r\n")
    assert service.raw(b"nonsense\r\n\r\n").status == 400


def test_answers_do_not_name_the_server_software(service: Site) -> None:
    headers = service.get("/healthz").headers
    assert "server" not in headers
    assert headers["connection"] == "close"
    assert headers["cache-control"] == "no-store"


class Broken:
    """Runs whose code fails."""

    async def run(self, _size: int | None) -> Any:
        raise ValueError("ana@example.com: the content")


def test_a_bug_of_the_service_shows_no_details_to_callers(caplog: pytest.LogCaptureFixture) -> None:
    nothing: Any = None
    runs: Any = Broken()
    app = make_app(Service(runs, nothing, nothing, secret=SECRET, metrics_token=None))
    sent: list[Any] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {SECRET}".encode())],
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    with pytest.raises(ValueError, match="the content"):  # for the server's log, which hides it
        asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 500
    body = b"".join(message.get("body", b"") for message in sent)
    assert b"content" not in body
    assert b"internal error" in body
    assert "a request failed: ValueError at " in caplog.text
    assert "service/test_endpoints.py" in caplog.text


@pytest.fixture
def program(database_url: str) -> Program:
    return Program(database_url)


@pytest.mark.parametrize("arguments", [("serve",), ("worker", "--serve")])
def test_the_service_needs_a_secret(program: Program, arguments: tuple[str, ...]) -> None:
    what, hint = program.fails(*arguments)
    assert what == "The HTTP service has no secret"
    assert "MAILGRES_SERVE_SECRET" in hint


@pytest.mark.parametrize(
    "secret", ["short", "x" * 15, "blanks in the middle", "sécrèt-enough-long"]
)
def test_the_service_refuses_bad_secrets(program: Program, secret: str) -> None:
    done = program.run("serve", MAILGRES_SERVE_SECRET=secret)
    assert done.returncode == 1
    assert "16" in done.stderr
    assert secret not in done.stderr


def test_a_port_in_use_is_reported(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = program.run("serve", "--serve-port", port, MAILGRES_SERVE_SECRET=SECRET)
    assert done.returncode == 1
    assert f"Error: Cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "missing", ["starlette", "uvicorn", "prometheus_client", "standardwebhooks"]
)
def test_serve_without_its_extra_says_what_to_install(missing: str, database_url: str) -> None:
    code = f"import sys; sys.modules['{missing}'] = None; from mailgres.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve"],
        env={"DATABASE_URL": database_url, "MAILGRES_SERVE_SECRET": SECRET},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Hint: pip install starlette uvicorn prometheus_client standardwebhooks" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_with_serve_sends_and_answers(harness: E2eHarness, resend: ResendDouble) -> None:
    """Both in one process: it sends by itself, and answers."""
    with site(harness, "worker", "--serve", "--open-metrics") as service:
        harness.enqueue()
        until(lambda: harness.statuses() == {"sent": 1}, "the worker sends it")
        assert service.trigger().status == 200
        assert service.get("/readyz").json["lastRun"]
        assert len(resend.accepted()) == 1
        text = service.get("/metrics").body.decode()
        assert 'mailgres_send_duration_seconds_count{provider="resend"} 1.0' in text
        assert service.process.stop()["sent"] == 1


def test_several_worker_processes_share_one_service(
    harness: E2eHarness, resend: ResendDouble
) -> None:
    with site(harness, "worker", "--serve", "--processes", "2") as service:
        harness.enqueue()
        until(lambda: harness.statuses() == {"sent": 1}, "a worker sends it")
        assert service.trigger().status == 200
        assert len(resend.accepted()) == 1
        service.process.popen.terminate()
        assert service.process.popen.wait(60) == 0, service.process.log
