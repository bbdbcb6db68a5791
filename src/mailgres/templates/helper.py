"""The process that renders templates whose memory is not bounded: see `isolated.py`."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from functools import lru_cache
from typing import IO, Any

from mailgres.templates.engine import Compiled, check_sizes
from mailgres.templates.fault import Fault
from mailgres.templates.isolated import CPU_SECONDS, LENGTH, MEMORY
from mailgres.templates.payload import context_of


def main() -> None:
    """Render what the parent sends, until it closes the pipe."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a stopping worker still renders its emails
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while head := requests.read(LENGTH.size):
        request = requests.read(*LENGTH.unpack(head))
        _allow_cpu(CPU_SECONDS)
        _write(_answer(request), answers)


def _allow_cpu(seconds: int) -> None:
    """End this process if it uses more CPU time than this from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def _answer(request: bytes) -> bytes:
    try:
        parts, payload = json.loads(request)
        rendered = _compiled(tuple(parts.items())).render_here(context_of(payload))
        check_sizes(rendered)
        answer: dict[str, Any] = {"rendered": rendered}
    except Fault as fault:
        answer = {"fault": [fault.part, fault.what, fault.line]}
    except MemoryError:
        os.abort()
    return json.dumps(answer).encode()


@lru_cache(maxsize=64)
def _compiled(parts: tuple[tuple[str, str], ...]) -> Compiled:
    return Compiled(dict(parts))


def _write(answer: bytes, answers: IO[bytes]) -> None:
    answers.write(LENGTH.pack(len(answer)) + answer)
    answers.flush()


if __name__ == "__main__":
    main()
