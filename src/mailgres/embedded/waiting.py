"""Wait for a condition, with a time limit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_SECONDS = 0.02


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until the condition is true; return False if it is not within the time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
