"""What holds for the whole command line: help, version, zones, colours, errors, exit codes."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import cli_page
from mailgres.cli import main
from support.postgres import Connect
from support.program import PROGRAM, Program
from support.queue import Queue

READERS = (
    ["list"],
    ["show", "01a1e19f-de56-7000-8000-000000000000"],
    ["status"],
    ["enqueue", "welcome_user", "ana@example.com"],
)


def test_every_command_has_help_with_an_example() -> None:
    """Each has a help with an example, and each listing a --json."""
    for path, text in cli_page.commands(main, "mailgres"):
        about = text.split("\n\n")[1].strip()
        assert about, path
        assert "Options:" in text, path
        if "\nCommands:\n" not in text:
            assert re.search(rf"\n  Examples?:\n(    .*\n)*    .*{path}", text), path
        if path.endswith((" list", " status", " stats", " eta")):
            assert "--json" in text, path


def test_the_page_on_commands_is_current() -> None:
    written = cli_page.PAGE.read_text(encoding="utf-8")
    assert written == cli_page.page(), "run `make docs`"


def test_a_misspelt_command_gets_a_suggestion() -> None:
    done = Program("").run("lst")
    assert done.returncode == 2
    assert done.stderr.endswith("Error: No such command 'lst'. Did you mean 'list'?\n")


def test_version_prints_package_and_schema() -> None:
    printed = Program("").run("--version").stdout
    assert re.fullmatch(
        rf"mailgres {re.escape(version('mailgres'))}, schema \d{{4}}_\w+\n", printed
    )


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_every_command_without_a_database_says_what_to_do(command: list[str]) -> None:
    what, hint = Program("").fails(*command)
    assert what == "No database was named"
    assert "`mailgres dev` starts one" in hint
    nobody = "postgresql://127.0.0.1:1/nothing"
    what, hint = Program(nobody).fails(*command)
    assert what.startswith("Cannot connect to 127.0.0.1:1/nothing")
    assert "Check that the server runs" in hint


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_every_command_without_a_schema_names_migrate(
    empty_database_url: str, command: list[str]
) -> None:
    _, hint = Program(empty_database_url).fails(*command)
    assert "mailgres migrate" in hint


def test_times_are_shown_and_read_in_the_same_time_zone(mailgres: Program, queue: Queue) -> None:
    """The user's own, or UTC; given times are read as they are shown."""
    queue.run(
        "INSERT INTO email_queue (id, template_type, recipient_email, created_at)"
        " SELECT mailgres.first_id_of(t), 'welcome_user', 'ana@example.com', t"
        " FROM (VALUES (timestamptz '2026-11-01T12:00Z')) x(t)"
    )
    there = {"TZ": "America/Sao_Paulo"}
    window = ("--since", "2026-11-01T08:59", "--until", "2026-11-01T09:01")
    assert "2026-11-01 09:00:00 -03" in mailgres("list", *window, **there)
    window = ("--since", "2026-11-01T11:59", "--until", "2026-11-01T12:01")
    assert "2026-11-01 12:00:00 UTC" in mailgres("list", "--utc", *window, **there)
    assert mailgres.json("list", *window, **there) == []


def test_colours_are_used_only_at_a_terminal_without_no_color(
    mailgres: Program, queue: Queue
) -> None:
    queue.enqueue()
    assert "\x1b[" not in mailgres("list")
    assert "\x1b[" in at_a_terminal(mailgres, "list")
    assert "\x1b[" not in at_a_terminal(mailgres, "list", NO_COLOR="1")


def at_a_terminal(mailgres: Program, *arguments: str, **env: str) -> str:
    ours, theirs = pty.openpty()
    given = {"DATABASE_URL": mailgres.url, "LC_ALL": "C.UTF-8", "TERM": "xterm", **env}
    process = subprocess.Popen([PROGRAM, *arguments], env=given, stdout=theirs, stdin=theirs)
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 4096):
            text += part
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    assert process.wait() == 0
    return text.decode()


def test_every_exit_code_is_documented(mailgres: Program) -> None:
    page = cli_page.PAGE.read_text(encoding="utf-8")
    assert mailgres.run("list").returncode == 0
    assert mailgres.run("list", "--template", "nobody_knows").returncode == 1
    assert mailgres.run("list", "--colour").returncode == 2
    for code in ("| 0 |", "| 1 |", "| 2 |", "| 3 |", "| 128 + n |"):
        assert code in page


@pytest.mark.parametrize(
    "command",
    [
        ("list",),
        ("templates", "list"),
        ("providers", "list"),
        ("janitor", "reap"),
        ("migrate",),
    ],
    ids=lambda command: command[0],
)
def test_ctrl_c_ends_every_command_with_130(
    mailgres: Program, queue: Queue, connect: Connect, command: tuple[str, ...]
) -> None:
    """Ctrl-C ends with 130 whatever is under way: here each waits for a lock."""
    other = connect(autocommit=False)
    other.execute(
        "LOCK TABLE email_queue, mailgres.providers, email_templates, mailgres.schema_version"
        " IN ACCESS EXCLUSIVE MODE"
    )
    done = mailgres.interrupted(queue, *command)
    other.rollback()
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nInterrupted.\n")


@pytest.mark.parametrize(("key", "code"), [(b"\x03", 130), (b"n\n", 1), (b"\x04", 1)])
def test_every_answer_but_yes_does_nothing(
    mailgres: Program, queue: Queue, key: bytes, code: int
) -> None:
    """Ctrl-C, no, and no answer at all: nothing is done."""
    queue.enqueue()
    ours, theirs = pty.openpty()
    given = {"DATABASE_URL": mailgres.url, "LC_ALL": "C.UTF-8", "TERM": "xterm"}
    # A session of its own, so that the terminal sends it the signal.
    process = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, PROGRAM, "cancel", "--all"],
        env=given, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    text = b""
    while b"[y/N]" not in text:
        text += os.read(ours, 4096)
    # It sleeps when it reads: Python does not notice a signal that comes just before that.
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0] != "S":
        assert process.poll() is None
    os.write(ours, key)
    assert process.wait(60) == code
    os.close(ours)
    assert queue.value("SELECT status FROM email_queue") == "pending"


AT_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


DRY = {
    "dlq export", "dlq purge", "dlq retry", "retry", "cancel", "reschedule", "enqueue", "janitor",
    "alerts set", "alerts reset-webhook", "providers pause", "providers resume", "providers reset",
    "providers limit", "routes set", "routes pause", "routes resume", "policies set",
    "policies default", "migrate",
    "tenants weight", "tenants pause", "tenants resume", "tenants limit", "tenants route",
    "tenants contact", "templates push", "templates retire", "templates rollback",
    "suppressions add", "suppressions remove", "suppressions import", "suppressions release",
    "suppressions set-rule", "suppressions reset-rule",
    "senders allow", "senders disallow",
    "producers bind", "producers unbind", "quarantine start", "quarantine release",
    "recover", "adopt",
}  # fmt: skip
OTHERS = {
    *("alerts check", "alerts explain", "alerts list", "alerts rules", "config", "demo", "dev"),
    *("dlq list", "dlq show", "dlq stats", "doctor", "errors explain", "eta", "list"),
    *("policies list", "process", "providers list", "providers test", "routes list", "serve"),
    *("show", "status", "suppressions explain", "suppressions export", "suppressions list"),
    "suppressions rules",
    "templates diff",
    *("templates list", "templates preview", "templates pull", "templates show", "tenants list"),
    *("producers list", "quarantine status", "senders list", "webhooks test", "worker"),
}
"""Commands that change no rows, or whose work it is to."""


def test_every_command_that_changes_rows_has_dry_run() -> None:
    for path, text in cli_page.commands(main, "mailgres"):
        if "\nCommands:\n" not in text:
            name = path.removeprefix("mailgres ")
            assert ("--dry-run" in text) == (name in DRY), path
            assert (name in DRY) != (name in OTHERS), path


def test_shell_completion_lists_commands(mailgres: Program) -> None:
    script = mailgres.run(_MAILGRES_COMPLETE="bash_source").stdout
    assert "_mailgres_completion" in script
    asked = {"_MAILGRES_COMPLETE": "bash_complete", "COMP_WORDS": "mailgres li", "COMP_CWORD": "1"}
    assert mailgres.run(**asked).stdout == "plain,list\n"


def test_every_command_is_on_the_page_on_commands() -> None:
    page = Path(cli_page.PAGE).read_text(encoding="utf-8")
    for path, _ in cli_page.commands(main, "mailgres"):
        assert f"\n## {path}\n" in page
