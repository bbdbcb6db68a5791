"""The processes of a soak: workers, and beside them a processor without tokens."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from pathlib import Path

from support import forked
from worker.harness import PROGRAM
from worker.restartable import RestartableHarness


class SoakWorkers:
    """Starts, kills and stops the processes."""

    def __init__(self, restartable: RestartableHarness, directory: Path) -> None:
        self._restartable = restartable
        self._log = (directory / "log").open("w")
        self._workers: list[subprocess.Popen[str]] = []
        self.processor: subprocess.Popen[str] | None = None

    def fill(self, count: int) -> None:
        """Have this many workers; one that could not reach the database is started again."""
        for each in [each for each in self._workers if each.poll() is not None]:
            each.communicate()
            self._workers.remove(each)
        while len(self._workers) < count:
            self._workers.append(self.start(str(PROGRAM), "worker", "--log-level", "warning"))

    def start(self, *command: str) -> subprocess.Popen[str]:
        env = self._restartable.environment()
        return forked.start(command, env=env, stdout=subprocess.PIPE, stderr=self._log)

    def kill_one(self, chance: random.Random) -> None:
        victim = chance.choice(self._workers)
        victim.kill()
        victim.wait()

    def stop_processor(self) -> dict[str, int] | None:
        if self.processor is None:
            return None
        self.processor.send_signal(signal.SIGTERM)
        reported, _ = self.processor.communicate(timeout=60)
        self.processor = None
        done: dict[str, int] = json.loads(reported)
        return done

    def close(self) -> None:
        for each in self._workers:
            each.terminate()
        for each in (*self._workers, *([self.processor] if self.processor else [])):
            try:
                each.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                each.kill()
                each.communicate()
        self._log.close()
