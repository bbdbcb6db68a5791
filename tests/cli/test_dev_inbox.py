"""`mailgres dev` as a developer uses it: its inbox, its lines, its templates, its port."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import psycopg
import pytest

from cli.test_dev import Dev, running
from embedded.harness import open_directory
from worker.harness import until

TEMPLATE = """+++
subject = "Hello {{ name }}"
sample = { name = "Ana" }
+++
<p>Hello {{ name }}</p>
"""
ENQUEUE = "SELECT enqueue_email(NULL, 'hello', 'ana@example.com', '{\"name\": \"Ana\"}')"
MANY = """SELECT enqueue_email(NULL, 'welcome_user', 'n' || n || '@example.com')
    FROM generate_series(0, 449) n"""
WELCOME = "SELECT enqueue_email(NULL, 'welcome_user', %s)"


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """One data directory for all tests here: the server starts once, and is kept."""
    directory = open_directory()
    yield directory
    until(lambda: not list(directory.rglob("postmaster.pid")), "its server has ended")
    shutil.rmtree(directory)


def address(dev: Dev) -> str:
    """The address of the inbox, with its token."""
    (found,) = re.findall(
        r"^Inbox: (http://127\.0\.0\.1:\d+/\?token=\w+)$", "".join(dev.said), re.MULTILINE
    )
    return str(found)


def page(dev: Dev, path: str = "") -> str:
    """A page of the inbox, as a browser with the printed address gets it."""
    browser = build_opener(HTTPCookieProcessor())
    with browser.open(address(dev)) as answer:
        first = answer.read().decode()
    if not path:
        return str(first)
    with browser.open(address(dev).partition("?")[0] + path) as answer:
        return str(answer.read().decode())


def line(dev: Dev) -> str:
    """The next line that it prints."""
    assert dev.process.stdout is not None
    return re.sub(r"\x1b\[\d+m", "", dev.process.stdout.readline())


def enqueue(dev: Dev, recipient: str) -> None:
    with psycopg.connect(dev.url, autocommit=True) as conn:
        conn.execute(WELCOME, (recipient,))


def test_dev_prints_a_line_per_email_and_ends_at_ctrl_c_while_a_browser_watches(
    place: Path, tmp_path: Path
) -> None:
    with running(("--data-dir", str(place), "--fresh"), dict(os.environ), tmp_path) as dev:
        assert "No emails yet" in page(dev)
        enqueue(dev, "ana@example.com")
        assert re.fullmatch(r"\d\d:\d\d:\d\d  captured   ana@example.com  Welcome.*\n", line(dev))
        assert "ana@example.com" in page(dev)
        port = int(re.findall(r":(\d+)/", address(dev))[0])
        watching = HTTPConnection("127.0.0.1", port, timeout=60)
        token = address(dev).partition("=")[2]
        watching.request("GET", "/events", headers={"Authorization": f"Bearer {token}"})
        assert watching.getresponse().readline() == b"retry: 500\n"
        assert dev.end(signal.SIGINT) == 0
        assert line(dev) == "Stopped.\n"
        watching.close()


def test_every_email_of_a_large_transaction_has_a_line_and_a_deletion_prints_none(
    place: Path, tmp_path: Path
) -> None:
    with running(("--data-dir", str(place), "--fresh"), dict(os.environ), tmp_path) as dev:
        with psycopg.connect(dev.url, autocommit=True) as conn:
            conn.execute(MANY)
            expected = {f"n{number}@example.com" for number in range(450)}
            assert {line(dev).split()[2] for _ in expected} == expected
            conn.execute("SELECT mailgres.delete_from_inbox(NULL, 230)")
            conn.execute(WELCOME, ("last@example.com",))
        assert line(dev).split()[2] == "last@example.com"
        assert dev.end() == 0


def test_dev_keeps_its_data_and_the_address_of_its_inbox_until_it_starts_fresh(
    place: Path, tmp_path: Path
) -> None:
    arguments = ("--data-dir", str(place))
    with running((*arguments, "--fresh"), dict(os.environ), tmp_path) as dev:
        enqueue(dev, "kept@example.com")
        assert "kept@example.com" in line(dev)
        token = address(dev).partition("=")[2]
        dev.end()
    with running(arguments, dict(os.environ), tmp_path) as dev:
        assert "kept@example.com" in page(dev)
        assert address(dev).partition("=")[2] == token
        dev.end()
    with running((*arguments, "--fresh"), dict(os.environ), tmp_path) as dev:
        assert "No emails yet" in page(dev)
        dev.end()


def test_a_start_with_a_current_database_loads_nothing_of_migrations(
    place: Path, tmp_path: Path
) -> None:
    """They take longer to load than all the rest: a place in which they cannot be loaded."""
    with running(("--data-dir", str(place)), dict(os.environ), tmp_path) as dev:
        dev.end()
    for name in ("alembic", "sqlalchemy"):
        (tmp_path / f"{name}.py").write_text(f"raise AssertionError('{name} is loaded')\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with running(("--data-dir", str(place)), env, tmp_path) as dev:
        assert "mailgres" in page(dev)
        assert dev.end() == 0


def test_two_dev_at_once_have_an_inbox_each_and_neither_drops_the_database_of_the_other(
    place: Path, tmp_path: Path
) -> None:
    arguments = ("--data-dir", str(place))
    with (
        running(arguments, dict(os.environ), tmp_path) as first,
        running(arguments, dict(os.environ), tmp_path) as second,
    ):
        assert address(first) != address(second)
        enqueue(first, "both@example.com")
        assert "both@example.com" in line(first)
        assert "both@example.com" in line(second)
        with (
            pytest.raises(AssertionError, match="it ended"),
            running((*arguments, "--fresh"), dict(os.environ), tmp_path),
        ):
            pass
        assert "both@example.com" in page(second)
        assert (first.end(), second.end()) == (0, 0)


def test_dev_says_who_has_the_port_and_takes_another(place: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ("--data-dir", str(place), "--port", str(port))
        with running(arguments, dict(os.environ), tmp_path) as dev:
            said = "".join(dev.said)
            assert f"Port {port} is taken by " in said
            assert f"(process {os.getpid()})" in said
            assert f":{port}/" not in address(dev)
            assert "mailgres" in page(dev)
            dev.end()


def test_dev_pushes_templates_as_they_are_saved_and_shows_errors_until_they_are_fixed(
    place: Path, tmp_path: Path
) -> None:
    templates = tmp_path / "templates"
    templates.mkdir()
    file = templates / "hello.html"
    file.write_text(TEMPLATE)
    arguments = ("--data-dir", str(place), "--fresh", "--templates", str(templates))
    with running(arguments, dict(os.environ), tmp_path) as dev:
        assert "template hello: created (version 1)\n" in dev.said
        file.write_text(TEMPLATE.replace("<p>Hello", "<p>Welcome"))
        assert line(dev) == "template hello: new version (version 2)\n"
        file.write_text(TEMPLATE.replace("{{ name }}</p>", "{{ nmae"))
        until(lambda: "hello.html" in page(dev), "the inbox shows the error")
        with psycopg.connect(dev.url, autocommit=True) as conn:
            conn.execute(ENQUEUE)  # the last good version is used
        assert "captured   ana@example.com  Hello Ana" in line(dev)
        file.write_text(TEMPLATE)
        assert line(dev).startswith("template hello: new version")
        until(lambda: 'role="alert"' not in page(dev), "the error is gone")
        assert dev.end() == 0


def test_dev_refuses_a_directory_of_templates_that_does_not_exist(tmp_path: Path) -> None:
    arguments = ("--templates", str(tmp_path / "nowhere"))
    with (
        pytest.raises(AssertionError, match="it ended"),
        running(arguments, dict(os.environ), tmp_path),
    ):
        pass
