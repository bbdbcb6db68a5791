"""Render in a separate process, which may run out of memory without harming this one.

One helper process renders everything that `bounds.py` cannot bound. It has limits on memory and
time, no secrets in its environment, and ends when its standard input does. If a template exceeds
its limits, the helper dies, that email has a fault, and the next one gets a new helper.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mailgres.templates.fault import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

MEMORY = 384 * 1024 * 1024
"""Bytes of address space that the helper may have, its interpreter included."""
CPU_SECONDS = 5
"""Seconds of CPU time that one email may take."""
TIMEOUT_SECONDS = 30.0
"""Seconds of wall-clock time that one email may take, for a busy machine."""

LENGTH = struct.Struct("!I")
"""The length, sent before a request and before an answer."""

_KEPT = ("LD_LIBRARY_PATH", "PYTHONHOME")  # an interpreter may need these to start
_OUT_OF_TIME = {signal.SIGXCPU}
_KILLED = {signal.SIGKILL, signal.SIGTERM}


class _HelperDied(Exception):
    """The helper ended during a rendering; `exit_code` is subprocess's."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class _Helper:
    """The parent's side of one helper process."""

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mailgres.templates.helper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it may quote values of the payload
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process
        )

    def render(self, parts: Mapping[str, str], payload: Mapping[str, Any]) -> dict[str, Any]:
        """Have the helper render; raise _HelperDied if it ends meanwhile."""
        request = json.dumps([parts, payload]).encode()
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        try:
            self._process.stdin.write(LENGTH.pack(len(request)) + request)
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._read())
        except (BrokenPipeError, EOFError):
            raise _HelperDied(self._process.wait()) from None
        return answer

    def _read(self) -> bytes:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        (length,) = LENGTH.unpack(self._read_exactly(LENGTH.size, deadline))
        return self._read_exactly(length, deadline)

    def _read_exactly(self, length: int, deadline: float) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        pipe = self._process.stdout.fileno()
        read = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while len(read) < length:
                if not selector.select(max(deadline - time.monotonic(), 0.0)):
                    self._process.send_signal(signal.SIGXCPU)
                    raise EOFError
                chunk = os.read(pipe, min(length - len(read), 1 << 20))
                if not chunk:
                    raise EOFError
                read += chunk
        return bytes(read)

    def close(self) -> None:
        """End the helper by closing its input."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Pool:
    """The helper of this process: started when it is needed, replaced when it died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: _Helper | None = None
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def render(self, parts: Mapping[str, str], payload: Mapping[str, Any]) -> dict[str, str]:
        with self._lock:
            try:
                answer = self._ask(parts, payload)
            except _HelperDied as first:
                # Another process killed it: that says nothing about the template.
                if -first.exit_code not in _KILLED:
                    raise _fault_of(first) from None
                try:
                    answer = self._ask(parts, payload)
                except _HelperDied as second:
                    raise _fault_of(second) from None
        if "fault" in answer:
            raise Fault(*answer["fault"])
        rendered: dict[str, str] = answer["rendered"]
        return rendered

    def _ask(self, parts: Mapping[str, str], payload: Mapping[str, Any]) -> dict[str, Any]:
        helper = self._helper or _Helper()
        self._helper = None
        try:
            answer = helper.render(parts, payload)
        except BaseException:
            helper.close()
            raise
        self._helper = helper
        return answer

    def close(self) -> None:
        with self._lock:
            if self._helper is not None:
                self._helper.close()
                self._helper = None

    def _leave_to_parent(self) -> None:
        """Drop the helper after a fork: it is the parent's, and two users would mix up answers."""
        self._lock = threading.Lock()
        self._helper = None


def _fault_of(died: _HelperDied) -> Fault:
    if -died.exit_code in _OUT_OF_TIME:
        return Fault("template", f"it does not come to an end within {CPU_SECONDS} seconds")
    return Fault("template", f"it needs more than {MEMORY >> 20} MB of memory")


_POOL = _Pool()


def render_isolated(parts: Mapping[str, str], payload: Mapping[str, Any]) -> dict[str, str]:
    """Render the parts of a template in the helper process; exceeding its limits is a fault."""
    return _POOL.render(parts, payload)
