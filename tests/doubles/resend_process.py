"""The double of Resend in a process of its own, with the methods that it has in the test's.

with in_a_process(rate=2) as double:
    double.add_faults(Fault(status=500, times=3))
    double.summary()["accepted"]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from doubles.remote import RemoteDouble


@contextmanager
def in_a_process(**settings: Any) -> Iterator[RemoteDouble]:
    """Run a double in a process of its own."""
    command = [sys.executable, "-m", "doubles.resend"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    ) as process:
        try:
            assert process.stdout is not None
            double = RemoteDouble(process.stdout.readline().strip())
            if settings:
                double.set(**settings)
            yield double
        finally:
            process.kill()
