"""How records become lines: one each, in either form, with nothing in it that must not be there."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailgres import logs
from mailgres.safe_errors import reason, redact_addresses
from mailgres.settings import Account, Settings
from mailgres.settings.model import LogFormat
from support import privacy

PASSWORD = "p%40ss-w0rd-of-the-database"
SETTINGS = Settings(
    worker_name="worker-1",
    log_format="json",
    log_level="debug",
    database_url=f"postgresql://me:{PASSWORD}@db.example.com/mail",
    resend_api_key="re_a_key_of_resend",
    named_accounts=(Account("resend-acme", "resend", {"api_key": "re_a_key_of_acme"}),),
)
SECRETS = (PASSWORD, "p@ss-w0rd-of-the-database", "re_a_key_of_resend", "re_a_key_of_acme")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Yield where lines go; afterwards logging is as it was."""
    ours, root = logging.getLogger("mailgres"), logging.getLogger()
    before = ours.level, root.level, sys.excepthook, threading.excepthook
    lines = io.StringIO()
    logs.start(SETTINGS, lines)
    yield lines
    logging.captureWarnings(capture=False)
    for handler in [each for each in root.handlers if isinstance(each, logs._Lines)]:
        root.removeHandler(handler)
    ours.setLevel(before[0])
    root.setLevel(before[1])
    sys.excepthook, threading.excepthook = before[2:]


def reported(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_log_line_is_json_with_its_keys(stream: io.StringIO) -> None:
    extra = {"action": "claim", "event": "Named", "emails": 3, "worker": None}
    logging.getLogger("mailgres.worker").warning("claimed %s", 3, extra=extra)
    (line,) = reported(stream)
    assert line.pop("timestamp").endswith("+00:00")
    assert line == {
        "level": "warning",
        "message": "claimed 3",
        "action": "claim",
        "event": "Named",
        "emails": 3,
        "logger": "mailgres.worker",
        "worker": "worker-1",
    }


def test_starting_the_log_again_replaces_the_handler(stream: io.StringIO) -> None:
    logs.start(SETTINGS, stream)
    logging.getLogger("mailgres").info("once")
    assert len(reported(stream)) == 1


def test_libraries_are_logged_from_the_level_warning(stream: io.StringIO) -> None:
    """Below that they quote the calls they make: botocore the whole email."""
    library = logging.getLogger("botocore.endpoint")
    library.debug("sending ana@example.com")
    library.info("sending")
    library.warning("a warning of ana@example.com")
    (line,) = reported(stream)
    assert line["message"] == "a warning of <address>"


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_of_the_settings_never_reach_the_log(stream: io.StringIO, secret: str) -> None:
    log = logging.getLogger("boto")
    log.error("refused %s.", secret, extra={"why": [f"key={secret}"], "about": {secret: secret}})
    assert secret not in stream.getvalue()
    (line,) = reported(stream)
    assert line["why"] == [f"key={logs.SECRET}"]


def test_an_exception_is_logged_with_its_place_and_without_its_text(stream: io.StringIO) -> None:
    try:
        int("550 <ana@example.com>: the content")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("failed")
    (line,) = reported(stream)
    assert line["exception"].startswith("ValueError at logs/test_lines.py:")
    assert "content" not in stream.getvalue()


def test_an_exception_in_a_thread_is_logged_without_its_text(stream: io.StringIO) -> None:
    def fail() -> None:
        raise ValueError("ana@example.com: the content")

    thread = threading.Thread(target=fail, name="failing")
    thread.start()
    thread.join()
    (line,) = reported(stream)
    assert line["message"].startswith("a thread failed: ValueError at ")
    assert (line["level"], line["thread_name"]) == ("critical", "failing")
    assert "content" not in stream.getvalue()


FAILS = """
from mailgres import logs
from mailgres.settings import Settings
logs.start(Settings(log_format="{form}"))
raise ValueError("ana@example.com: the content")
"""


@pytest.mark.parametrize("form", ["json", "console"])
def test_an_uncaught_exception_is_one_log_line(form: str) -> None:
    command = [sys.executable, "-c", FAILS.format(form=form)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "the program failed: ValueError at " in line
    assert "content" not in line


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("text", ["one\ntwo", "one\r\x1b[2Jtwo", "one\u2028two", "one\x00two"])
def test_no_text_can_add_a_line_to_the_log(form: LogFormat, text: str) -> None:
    """Text from outside cannot add a line to the log, nor clear a terminal."""
    record = logging.makeLogRecord(
        {"name": "x", "msg": text, "levelno": 30, "levelname": "WARNING", "why": {"a": text}}
    )
    settings = Settings(log_format=form)
    line = logs.formatter(settings, terminal=False).format(record)
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    assert "\x00" not in line


def test_the_log_format_auto_means_console_at_a_terminal() -> None:
    record = logging.makeLogRecord({"name": "x", "msg": "hello", "levelname": "INFO"})
    line = logs.formatter(Settings(), terminal=True).format(record)
    assert "hello" in line
    assert not line.startswith("{")
    assert logs.formatter(Settings(), terminal=False).format(record).startswith("{")


@given(st.text(alphabet=st.sampled_from("ab@.<>\"' \n:;,ç(")))
def test_redaction_leaves_no_address(text: str) -> None:
    assert not privacy.ADDRESS.search(redact_addresses(text).replace("<address>", ""))


def test_the_reason_in_a_log_line_is_the_first_line_of_the_error() -> None:
    error = ValueError("failed for ana@example.com\nDETAIL:  Failing row contains (the content)")
    assert reason(error) == "failed for <address>"
    assert reason(ValueError()) == "ValueError"


def test_the_privacy_guard_of_the_suite_finds_addresses() -> None:
    """What watches every test finds what it looks for."""
    privacy.remember(
        {"payload": {"deep": [{"er": "a very private word"}]}, "subject": "My subject"}
    )
    for line in ("to ana@example.com", "a very private word", "My subject", privacy.SECRETS[0]):
        with pytest.raises(AssertionError, match="must not"):
            privacy.check(f"harmless\n{line}")
    privacy.check("harmless")
    handler = privacy.Watch()
    record = {"name": "mailgres.any", "msg": "hello", "levelname": "DEBUG", "to": "ana@example.com"}
    handler.emit(logging.makeLogRecord(record))
    with pytest.raises(AssertionError, match=r"ana@example\.com"):
        privacy.check("\n".join(handler.lines))
