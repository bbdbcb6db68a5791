"""Template files and the console script, for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support import forked

PROGRAM = Path(sys.executable).with_name("mailgres")


@dataclass(frozen=True)
class Script:
    """`mailgres templates`, run as a program on the test's database."""

    url: str

    def run(self, *arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        env = {"DATABASE_URL": self.url, "LC_ALL": "C.UTF-8"}
        return forked.run([PROGRAM, "templates", *arguments], env=env, stdin=stdin)

    def __call__(self, *arguments: str | Path, stdin: str = "") -> str:
        """Run it and return what it prints, nothing else being said."""
        done = self.run(*arguments, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def fails(self, *arguments: str | Path, stdin: str = "") -> tuple[str, str]:
        """Run it and return the two lines of its error."""
        done = self.run(*arguments, stdin=stdin)
        assert (done.returncode, done.stdout) == (1, "")
        what, hint = done.stderr.splitlines()
        assert what.startswith("Error: ")
        assert hint.startswith("Hint: ")
        return what.removeprefix("Error: "), hint.removeprefix("Hint: ")


Write = Callable[..., Path]
"""Writes files, given as names and texts, and returns their directory."""

FRONT = '+++\nsubject = "Hi"\n+++\n'
