"""The PostgreSQL of `mailgres dev` and `mailgres demo`: their own, whatever the shell names."""

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
    """Give a command `--database-url`, which no variable or file stands for, and `--data-dir`."""
    url = click.option(
        "--database-url",
        metavar="URL",
        help="Use this one, not an embedded PostgreSQL. Only this option names it: variables and"
        " files are ignored.",
    )
    place = click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where the embedded PostgreSQL keeps its data, not in the user's data directory.",
    )
    return url(place(command))


@contextmanager
def own_server(data_dir: Path | None) -> Iterator[str]:
    """Give the URL of the embedded PostgreSQL.

    libpq's variables would lead its connections elsewhere (PGHOSTADDR, PGSERVICE) or keep them from
    working (PGOPTIONS, PGSSLMODE).
    """
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
    with embedded.server(data_dir, settings={"cluster_name": embedded.OWN_SERVER}) as url:
        yield url
