"""The console script, for tests."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import forked
from support.queue import Queue

PROGRAM = Path(sys.executable).with_name("mailgres")
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
      AND wait_event_type = 'Lock'
"""


@dataclass(frozen=True)
class Program:
    """`mailgres`, run as a program on the test's database, in a time zone of its own."""

    url: str
    more: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        given = {"DATABASE_URL": self.url, "LC_ALL": "C.UTF-8", "TZ": "UTC", **self.more, **env}
        return forked.run([PROGRAM, *arguments], env=given, cwd="/")

    def __call__(self, *arguments: str, **env: str) -> str:
        """Run it and return what it prints, nothing else being said."""
        done = self.run(*arguments, **env)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def json(self, *arguments: str, **env: str) -> Any:
        """Run it with --json."""
        return json.loads(self(*arguments, "--json", **env))

    def fails(self, *arguments: str, **env: str) -> tuple[str, str]:
        """Run it and return the two lines of its error."""
        done = self.run(*arguments, **env)
        assert (done.returncode, done.stdout) == (1, ""), done
        what, hint = done.stderr.splitlines()
        assert what.startswith("Error: ")
        assert hint.startswith("Hint: ")
        return what.removeprefix("Error: "), hint.removeprefix("Hint: ")

    def misused(self, *arguments: str) -> str:
        """Run it and return the line that says what is wrong with its arguments."""
        done = self.run(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert "Traceback" not in done.stderr
        return done.stderr.splitlines()[-1].removeprefix("Error: ")

    def interrupted(self, queue: Queue, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it, press Ctrl-C when it waits for a lock, and return how it ended."""
        with subprocess.Popen(
            [PROGRAM, *arguments],
            env={"DATABASE_URL": self.url, "LC_ALL": "C.UTF-8"},
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            while not queue.value(WAITING):
                assert process.poll() is None, process.communicate()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)
