"""The directory of one embedded server: its files, their names and their modes."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import EmbeddedError

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT_BASE = Path("/var/lib/mailgres")
"""Where root keeps it: the unprivileged user of the server cannot enter /root."""


@dataclass(frozen=True)
class Home:
    """The files of the server of one major version.

    Our own files have mode 0600; only `data` belongs to the account of the server.
    """

    path: Path

    @property
    def data(self) -> Path:
        """PostgreSQL's data directory."""
        return self.path / "data"

    @property
    def unfinished_data(self) -> Path:
        """Where initdb works; renamed to `data` when it is done, so `data` is always complete."""
        return self.path / "data.unfinished"

    @property
    def initdb_password(self) -> Path:
        """A file with the password that initdb may read; exists only while it runs."""
        return self.path / "initdb.password"

    @property
    def copies(self) -> Path:
        """Copies of programs that the account of the server cannot run elsewhere."""
        return self.path / "binaries"

    @property
    def log(self) -> Path:
        """The log of the server and its supervisor."""
        return self.path / "server.log"

    @property
    def previous_log(self) -> Path:
        """The log of the run before."""
        return self.path / "server.log.1"

    @property
    def start_lock(self) -> Path:
        """Held by the one process that starts or joins the server."""
        return self.path / "start.lock"

    @property
    def users_lock(self) -> Path:
        """Shared by all users; the supervisor gets it exclusively when the last one has left."""
        return self.path / "users.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by initdb and then by the supervisor while it is alive; contains its process id."""
        return self.path / "supervisor.lock"

    @property
    def postgres_lock(self) -> Path:
        """Inherited by every process of the server: free exactly when none of them is left."""
        return self.path / "postgres.lock"

    def create(self) -> None:
        """Create missing directories; the account of the server may pass through them."""
        mode = 0o711 if os.geteuid() == 0 else 0o700
        for directory in (self.path.parent, self.path):
            if not directory.exists():
                directory.mkdir(parents=True, exist_ok=True)
                directory.chmod(mode)  # the umask may be stricter

    def password(self) -> str:
        """Return the password of the superuser, created at the first call."""
        path = self.path / "password"
        if not path.exists():
            if self.data.exists():
                raise EmbeddedError(
                    f"{path} is missing, so nobody can log in to the server in {self.data}",
                    f"Restore the file, or remove {self.path} to start with an empty server.",
                )
            fresh = self.path / "password.unfinished"
            fresh.unlink(missing_ok=True)
            write_private(fresh, secrets.token_urlsafe(32))
            fresh.rename(path)
        return path.read_text()

    def preferred_port(self) -> int | None:
        """Return the port of the last run: the same port keeps URLs of earlier users valid."""
        try:
            return int((self.path / "port").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def remember_port(self, port: int) -> None:
        """Store the port for the next run."""
        fresh = self.path / "port.unfinished"
        fresh.unlink(missing_ok=True)
        write_private(fresh, f"{port}\n")
        fresh.rename(self.path / "port")


def find_home(data_dir: Path | None, major: int, environ: Mapping[str, str]) -> Home:
    """Return the home for a major version: another version cannot read its data."""
    base = data_dir if data_dir is not None else default_base(environ)
    return Home(base.expanduser().resolve() / f"postgresql-{major}")


def default_base(environ: Mapping[str, str]) -> Path:
    """Return the data directory of this user."""
    if os.geteuid() == 0:
        return ROOT_BASE
    data_home = environ.get("XDG_DATA_HOME", "")
    # The XDG specification says that relative paths are ignored.
    if Path(data_home).is_absolute():
        return Path(data_home) / "mailgres"
    try:
        return Path.home() / ".local/share/mailgres"
    except RuntimeError:
        raise EmbeddedError(
            "This user has no home directory to keep the data of PostgreSQL in",
            "Set XDG_DATA_HOME to a directory of this user.",
        ) from None


def write_private(path: Path, text: str) -> None:
    """Write a new file that no other user can read, not even for a moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(descriptor, 0o600)  # the umask may be stricter
        file.write(text)
        file.flush()
        os.fsync(descriptor)
