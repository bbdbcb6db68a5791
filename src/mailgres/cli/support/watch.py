"""A screen that is refreshed until q or Ctrl-C."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mailgres.errors import MailgresError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENDS = {b"q", b"Q", b"\x03", b"\x04", b""}
"""Keys that end it: q, Ctrl-C, Ctrl-D, and the end of the terminal."""


def show_live(
    look: Callable[[], dict[str, Any]],
    lines_of: Callable[[dict[str, Any]], list[str]],
    interval: float,
) -> None:
    """Refresh the screen at an interval; while the database is unreachable, retry."""
    console = Console()
    lines: list[str] = []
    with _keys() as key, Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                lines, fault = _renewed(look, lines_of, lines)
                foot = fault or f"every {interval:g} s; q quits"
                live.update(_text([*lines, "", foot]), refresh=True)
                if key(interval) in ENDS:
                    return
        except KeyboardInterrupt:
            return


def _renewed(
    look: Callable[[], dict[str, Any]],
    lines_of: Callable[[dict[str, Any]], list[str]],
    before: list[str],
) -> tuple[list[str], str | None]:
    try:
        return lines_of(look()), None
    except MailgresError as error:
        return before, f"{error.message}. Retrying; q quits."


def _text(lines: list[str]) -> Text:
    text = Text.from_ansi("\n".join(lines))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


@contextmanager
def _keys() -> Iterator[Callable[[float], bytes | None]]:
    """Yield a function that waits for a key, with echo and line buffering off."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def wait(seconds: float) -> bytes | None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([descriptor], [], [], left)
            if ready:
                pressed = os.read(descriptor, 1)
                if pressed in ENDS:
                    return pressed
        return None

    try:
        tty.setcbreak(descriptor)
        yield wait
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
