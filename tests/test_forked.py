"""What tests start through the fork server behaves like a program that was started anew."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mailgres.cli import COMMANDS
from support import forked
from support.program import PROGRAM

ENV = {"LC_ALL": "C.UTF-8", "MAILGRES_WORKER_NAME": "one"}
REPORT = """
import json, os, signal, sys, threading, time
print(json.dumps({
    "argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "zone": time.tzname[0],
    "first": sys.path[0] == os.environ.get("FIRST", sys.path[0]), "name": __name__,
    "stdin": sys.stdin.read(), "session": os.getsid(0) == os.getpid(),
    "encodings": [each.encoding + each.errors for each in (sys.stdin, sys.stdout, sys.stderr)],
    "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "signals": [int(signal.getsignal(each)) for each in (signal.SIGCHLD, signal.SIGPIPE)],
    "threads": threading.active_count(), "files": sorted(os.listdir("/proc/self/fd"))[:3],
    "more files": len(os.listdir("/proc/self/fd")),
    "hook": sys.excepthook is sys.__excepthook__, "umask": os.umask(0),
}))
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def report(tmp_path: Path) -> str:
    (tmp_path / "report.py").write_text(REPORT)
    return str(tmp_path)


def test_a_forked_program_sees_what_a_new_one_sees(report: str) -> None:
    env = {**ENV, "PYTHONPATH": report, "TZ": "America/Sao_Paulo", "FIRST": "/usr"}
    command = [sys.executable, "-m", "report", "7", "--a"]
    seen = []
    for run in (forked.run, _run):
        done = run(command, env=env, cwd="/usr", stdin="ã\n")
        assert (done.returncode, done.stderr) == (7, "")
        seen.append(json.loads(done.stdout))
    assert seen[0] == seen[1]
    assert seen[0]["argv"] == ["7", "--a"]


def _run(
    command: list[str], *, env: dict[str, str], cwd: str, stdin: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, cwd=cwd, input=stdin, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "arguments", [["--version"], ["lst"], ["list"], ["config"], ["errors", "explain", "no-such"]]
)
def test_a_forked_console_script_prints_what_a_new_process_prints(arguments: list[str]) -> None:
    done = forked.run([PROGRAM, *arguments], env=ENV, cwd="/")
    real = _run([str(PROGRAM), *arguments], env=ENV, cwd="/", stdin="")
    assert (done.returncode, done.stdout, done.stderr) == (
        real.returncode,
        real.stdout,
        real.stderr,
    )


LATE = """
import threading
late = threading.Timer(0.1, lambda: print("late"))
late.start()
raise SystemExit(4)
"""
ENDS = {
    "an error": ("1 / 0", 1),
    "a text": ("import sys; sys.exit('no')", 1),
    "a signal": ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
    "an interruption": ("raise KeyboardInterrupt", -signal.SIGINT),
    "a thread": (LATE, 4),
}


@pytest.mark.parametrize("kind", ENDS)
def test_a_forked_program_ends_as_a_new_one(kind: str, tmp_path: Path) -> None:
    text, code = ENDS[kind]
    (tmp_path / "ending.py").write_text(text)
    env = {**ENV, "PYTHONPATH": str(tmp_path)}
    done = forked.run([sys.executable, "-m", "ending"], env=env)
    real = _run([sys.executable, "-m", "ending"], env=env, cwd="/", stdin="")
    assert done.returncode == real.returncode == code
    assert done.stdout == real.stdout
    assert done.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


def test_a_forked_program_can_be_killed_with_its_session(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text("import time; print('up', flush=True); time.sleep(60)")
    env = {**ENV, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "waiting"]
    with forked.start(command, env=env, stdout=subprocess.PIPE, start_new_session=True) as process:
        os.killpg(process.pid, 0)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL


def test_a_program_with_a_locale_of_its_own_gets_a_python_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "encoding.py").write_text("import sys; print(sys.stdout.encoding)")
    env = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(tmp_path)}
    done = forked.run([sys.executable, "-m", "encoding"], env=env)
    assert done.stdout == "ascii\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_loads_what_it_needs(command: str) -> None:
    """In a Python that has loaded nothing before, unlike the fork server."""
    done = _run([str(PROGRAM), command, "--help"], env=ENV, cwd="/", stdin="")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: mailgres {command} ")
