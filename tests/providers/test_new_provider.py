"""A new provider is a package that declares its kind, and one line in the registry."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.postgres import Connect
from support.queue import Queue

PACKAGE = """
from pathlib import Path
from mailgres.model import Result
from mailgres.providers.base import Capabilities, Option, ProviderKind
from mailgres.providers.faults import Rule
from mailgres.values.kinds import Text

class PigeonProvider:
    kind = "pigeon"
    capabilities = Capabilities(batch_size=2, idempotent=True)

    def __init__(self, account):
        self.name, self.loft = account.name, Path(account.options["loft"])

    def send(self, messages):
        for message in messages:
            (self.loft / message.email.recipient_email).write_text(message.subject)
        return [Result("sent", message.email.key) for message in messages]

    def limits(self): ...
    def check(self): return Result("sent")
    def close(self): ...

PIGEON = ProviderKind(
    "pigeon", "Pigeon", lambda account, runtime: PigeonProvider(account),
    options=(Option("loft", Text(), "Where pigeons live.", needed=True),),
    rules=(Rule("transient", "It rains.", code="rain"),),
    spf="include:pigeons.example.com",
)
"""
PROGRAM = """
from mailgres.providers.registry import PROVIDERS
from pigeon import PIGEON
PROVIDERS["pigeon"] = PIGEON

from mailgres.cli import main
main()
"""


def test_a_new_provider_is_one_package_and_one_line(
    database_url: str, connect: Connect, tmp_path: Path
) -> None:
    queue = Queue(connect())
    (tmp_path / "pigeon").mkdir()
    (tmp_path / "pigeon" / "__init__.py").write_text(PACKAGE)
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        environment = {"DATABASE_URL": database_url, "MAILGRES_PROVIDERS": "pigeon-a", **env}
        command = [sys.executable, str(tmp_path / "program.py"), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    missing = run("process").stderr
    assert "pigeon-a needs loft" in missing
    assert "Set MAILGRES_PIGEON_A_LOFT" in missing

    queue.enqueue(recipient_email="ana@example.com", from_email="a@example.com")
    done = run("process", MAILGRES_PIGEON_A_LOFT=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ana@example.com").read_text()
    assert queue.rows(
        "SELECT kind, captures, idempotent, batch_size FROM mailgres.providers"
        " WHERE name = 'pigeon-a'"
    ) == [("pigeon", False, True, 2)]
    assert queue.rows("SELECT status, provider FROM email_queue") == [("sent", "pigeon-a")]

    assert "It rains." in run("errors", "explain", "rain").stdout
    settings = json.loads(run("config", "--json", MAILGRES_PIGEON_LOFT="/loft").stdout)["settings"]
    assert settings["pigeon_loft"]["value"] == "/loft"
