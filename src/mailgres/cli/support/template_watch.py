"""Push templates as their files are saved: `mailgres dev --templates DIR`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import click

from mailgres.cli.support.operator import operator
from mailgres.errors import DatabaseUnreachable, MailgresError
from mailgres.safe_errors import printable
from mailgres.templates import read_templates, stored

if TYPE_CHECKING:
    from pathlib import Path

LOOK_SECONDS = 0.2
"""Seconds between two looks at the files."""


class TemplateWatch:
    """Looks at a directory, and pushes what changed; the last error stays until it is fixed."""

    def __init__(self, directory: Path, database_url: str) -> None:
        self._directory = directory
        self._url = database_url
        self._known: object = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mailgres-templates", daemon=True)
        self.error: str | None = None

    def __enter__(self) -> Self:
        """Push the templates once, then watch."""
        self.look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._stopping.set()
        self._thread.join()

    def notices(self) -> list[str]:
        """Return the error, for the pages of the inbox."""
        return [self.error] if self.error else []

    def look(self) -> None:
        """Push the templates if a file changed."""
        seen = self._files()
        if seen == self._known:
            return
        try:
            self._push()
        except DatabaseUnreachable:
            return  # pushed when it is back
        except MailgresError as error:
            self._say(error)
        else:
            self.error = None
        self._known = seen

    def _push(self) -> None:
        drafts = read_templates([self._directory])
        with operator(self._url) as asked:
            pushed = [stored.push(asked.connection, draft) for draft in drafts]
        for each in pushed:
            if each.change != "unchanged":
                click.echo(f"template {each.name}: {each.change} (version {each.version})")

    def _say(self, error: MailgresError) -> None:
        self.error = printable(f"{error.message}\n{error.hint or ''}".strip(), keep="\n")
        click.secho(f"template not pushed: {self.error}", fg="red", err=True)

    def _files(self) -> object:
        """Return what tells one version of the files from another."""
        try:
            return sorted(
                (path.name, path.stat().st_mtime_ns, path.stat().st_size)
                for path in self._directory.iterdir()
                if path.suffix in (".html", ".txt")
            )
        except OSError as error:
            return str(error)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            self.look()
