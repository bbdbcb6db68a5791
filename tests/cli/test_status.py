"""`mailgres status`, run as a program, and live at a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from mailgres.cli.support.status_screen import sparkline
from support.program import PROGRAM, Program
from support.queue import Clock, Queue

WAIT_SECONDS = 60


@pytest.fixture
def busy(queue: Queue) -> Queue:
    """Two sent, one dead, one that waits, a worker that lives, a provider that is cut off."""
    for _ in range(2):
        queue.enqueue()
        queue.attempt("sent")
    queue.enqueue()
    queue.attempt("permanent", code="validation_error", message="no such address")
    queue.enqueue()
    queue.run("SELECT mailgres.heartbeat('worker-1', '0.1.0')")
    queue.run("UPDATE mailgres.providers SET circuit = 'open', circuit_since = now(),"
              " circuit_until = now() + interval '2 minutes' WHERE name = 'capture'")  # fmt: skip
    return queue


@pytest.mark.usefixtures("busy")
def test_status_fits_on_one_screen(mailgres: Program) -> None:
    lines = mailgres("status").splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    text = "\n".join(lines)
    assert "pending 1  sending 0  sent 2  failed 1  cancelled 0" in text
    assert "1 due now, the oldest for " in text
    assert "sent 2 (" in text
    assert "dead 1  33.3 % failed" in text
    assert "open circuit for " in text
    assert "1 alive" in text
    assert "worker-1, 0.1.0, for " in text


def test_status_shows_what_providers_reported(mailgres: Program, busy: Queue) -> None:
    assert "\nevents" not in mailgres("status")
    busy.run(
        "SELECT record_email_event(NULL, 'delivered', p_queue_id => id) FROM email_queue"
        " WHERE status = 'sent'"
    )
    busy.run("SELECT record_email_event('resend', 'opened', 'unknown')")
    text = mailgres("status")
    assert "24 h: delivered 2  bounced 0  complained 0  unmatched 1" in text
    assert mailgres.json("status")["events"]["delivered"] == 2


def test_status_of_an_empty_queue_says_so(mailgres: Program) -> None:
    text = mailgres("status")
    assert "nothing is due" in text
    assert "no attempts" in text
    assert "none alive" in text


@pytest.mark.usefixtures("busy")
def test_status_as_json_has_all_figures(mailgres: Program) -> None:
    found = mailgres.json("status")
    assert {one["status"]: one["emails"] for one in found["states"]}["sent"] == 2
    assert found["due"]["emails"] == 1
    assert len(found["throughput"]) == 60
    assert sum(minute["sent"] for minute in found["throughput"]) == 2
    assert [one["worker"] for one in found["workers"]] == ["worker-1"]
    assert [one["circuit"] for one in found["providers"]] == ["open"]
    assert isinstance(found["alerts"], list)


def test_control_characters_in_names_do_not_reach_the_status_screen(
    mailgres: Program, queue: Queue
) -> None:
    queue.run("SELECT mailgres.heartbeat(%s, '0.1.0')", "worker\x1b]0;mine\x07")
    text = mailgres("status")
    assert "worker\ufffd]0;mine\ufffd, 0.1.0" in text
    assert text.replace("\n", "").isprintable()


def test_the_sparkline_scales_to_the_largest_value() -> None:
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([0, 1, 50, 100]) == "▁▂▅█"
    assert sparkline([]) == ""


def test_status_watch_needs_a_terminal(mailgres: Program) -> None:
    assert "needs a terminal" in mailgres.misused("status", "--watch")
    assert "--watch or --json, not both" in mailgres.misused("status", "--watch", "--json")


def own_the_terminal() -> None:
    """Let Ctrl-C reach the new session, as in a terminal's own shell."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def watching(mailgres: Program) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`status --watch` at a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    env = {"DATABASE_URL": mailgres.url, "LC_ALL": "C.UTF-8", "TERM": "xterm", "TZ": "UTC"}
    process = subprocess.Popen(
        [PROGRAM, "status", "--watch", "--interval", "0.2"],
        env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=own_the_terminal,  # noqa: PLW1509 - this process has one thread
    )  # fmt: skip
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, found: Callable[[str], bool]) -> str:
    """Read what the terminal shows until something is there."""
    text = b""
    until = time.monotonic() + WAIT_SECONDS
    while not found(text.decode(errors="replace")):
        assert time.monotonic() < until, text.decode(errors="replace")
        if select.select([terminal], [], [], 1)[0]:
            try:
                text += os.read(terminal, 65536)
            except OSError:  # the program has ended
                break
    return text.decode(errors="replace")


@pytest.mark.parametrize("key", [b"q", b"\x03", signal.SIGINT], ids=["q", "key", "signal"])
def test_status_watch_restores_the_terminal_when_it_ends(
    mailgres: Program, key: bytes | signal.Signals
) -> None:
    with watching(mailgres) as (process, terminal):
        read_until(terminal, lambda text: "nothing is due" in text)
        if isinstance(key, bytes):
            os.write(terminal, key)
        else:
            process.send_signal(key)
        rest = read_until(terminal, lambda text: "\x1b[?1049l" in text)
        assert process.wait(WAIT_SECONDS) == 0
        assert "\x1b[?25h" in rest, "the cursor is shown again"
        assert "Traceback" not in rest


def test_status_watch_shows_changes(mailgres: Program, queue: Queue) -> None:
    with watching(mailgres) as (_, terminal):
        read_until(terminal, lambda text: "no attempts" in text)
        queue.enqueue()
        queue.attempt("sent")
        read_until(terminal, lambda text: "sent 1 (" in text)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.usefixtures("busy")
def test_status_watch_fits_into_80_columns_and_24_lines(mailgres: Program) -> None:
    """As a person sees it, in 80 columns and 24 lines."""
    socket = f"mailgres-{uuid4()}"

    def tmux(*arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-L", socket, *arguments], check=True, capture_output=True, text=True,
            env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"], "TERM": "xterm",
                 "DATABASE_URL": mailgres.url},
        ).stdout  # fmt: skip

    tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24",
         f"{PROGRAM} status --watch --interval 0.2")  # fmt: skip
    try:
        until = time.monotonic() + WAIT_SECONDS
        while "q quits" not in (screen := tmux("capture-pane", "-p")):
            assert time.monotonic() < until, screen
            time.sleep(0.05)
    finally:
        tmux("kill-server")
    lines = screen.splitlines()
    assert lines[0].startswith("mailgres, 20")
    assert any(line.startswith("queue       pending 1") for line in lines)
    assert any(line.startswith("workers     1 alive") for line in lines)
    assert any("█" in line for line in lines)
    assert "…" not in screen


def test_in_the_last_minute_means_the_last_60_seconds(mailgres: Program, queue: Queue) -> None:
    """Whatever part of them lies in the minute of the clock, and whether counts are folded."""
    clock = Clock(queue.conn, datetime.now(UTC).replace(second=10, microsecond=0))
    for step in (0, 30, 35, 20):  # 85, 55, 20 and 0 seconds before it is asked
        clock.forward(timedelta(seconds=step))
        queue.enqueue()
        queue.attempt("sent")
    assert "sent 4 (3 in the last minute)" in mailgres("status")
    assert mailgres.json("status")["sent_in_60s"] == 3
    queue.run("SELECT mailgres.fold_rollups()")
    assert "sent 4 (3 in the last minute)" in mailgres("status")


def test_the_age_of_the_counts_is_shown(mailgres: Program, queue: Queue) -> None:
    clock = Clock(queue.conn)
    queue.enqueue()
    queue.run("SELECT mailgres.measure_depth('0')")
    clock.forward(timedelta(seconds=7))
    assert "1 due now, the oldest for 7s; counted 7s ago" in mailgres("status")
    assert mailgres.json("status")["counted_at"] == (clock.now - timedelta(seconds=7)).isoformat()
    clock.forward(timedelta(hours=1))  # nobody counts any more, so whoever asks does
    assert "counted now" in mailgres("status")
