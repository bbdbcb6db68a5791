"""The account that the server runs as: PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import EmbeddedError

if TYPE_CHECKING:
    from pathlib import Path

UNPRIVILEGED = ("postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """A user of the operating system, and whether a switch is needed to become it."""

    uid: int
    gid: int
    switch: bool

    def popen_options(self) -> dict[str, Any]:
        """Return the options for subprocess that run a child as this account."""
        if not self.switch:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def give(self, path: Path) -> None:
        """Make this account the owner of one of our paths."""
        if self.switch:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def require_entry(self, directory: Path) -> None:
        """Raise if this account cannot enter a directory; never change its permissions."""
        if not self.switch:
            return
        # In the child, after the switch: subprocess would change to `cwd` before it.
        command = ["/bin/sh", "-c", 'cd -- "$0"', str(directory)]
        done = subprocess.run(
            command, cwd="/", capture_output=True, check=False, **self.popen_options()
        )
        if done.returncode != 0:
            raise EmbeddedError(
                f"The user with id {self.uid}, as which PostgreSQL runs, cannot enter {directory}",
                "Choose a data directory all of whose parents other users can enter.",
            )


def server_account(data: Path) -> Account:
    """Return the owner of an existing data directory, else us; for root an unprivileged user."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), switch=False)
    if data.exists():
        status = data.stat()
        return Account(status.st_uid, status.st_gid, switch=True)
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, switch=True)
    raise EmbeddedError(
        "PostgreSQL does not run as root, and there is neither a user 'postgres' nor 'nobody'.",
        "Run as an ordinary user, or name a server of your own with --database-url.",
    )
