"""The embedded PostgreSQL of `mailgres dev` and `mailgres demo`."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from mailgres import embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

R = TypeVar("R")


def server_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command `--data-dir`, and a `--database-url` that ignores variables and files."""
    url = click.option(
        "--database-url",
        metavar="URL",
        help="Use this server, not an embedded PostgreSQL. Variables and files do not set it.",
    )
    place = click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where the embedded PostgreSQL keeps its data, not in the user's data directory.",
    )
    return url(place(command))


@contextmanager
def own_server(data_dir: Path | None) -> Iterator[str]:
    """Yield the URL of the embedded PostgreSQL.

    The variables of libpq are removed: they would redirect its connections (PGHOSTADDR, PGSERVICE)
    or break them (PGOPTIONS, PGSSLMODE).
    """
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
    with embedded.server(data_dir, settings={"cluster_name": embedded.OWN_SERVER}) as url:
        yield url
