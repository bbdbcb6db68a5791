"""Import modules while the program waits for something else."""

from __future__ import annotations

import importlib
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def preloading(modules: Sequence[str]) -> Iterator[None]:
    """Import modules in a thread during the `with` block: as many as there is time for.

    A module of an extra that is not installed is left out; whoever needs it says so.
    """
    is_over = threading.Event()

    def load() -> None:
        for name in modules:
            if is_over.is_set():
                return
            with suppress(ImportError):
                importlib.import_module(name)

    thread = threading.Thread(target=load, name="mailgres-preloading", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
