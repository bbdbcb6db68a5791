"""`mailgres demo` through the console script, on the server of this run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.postgres import Connect

MAILGRES = Path(sys.executable).with_name("mailgres")


README = Path(__file__).parents[2] / "README.md"


def shown_in_readme() -> str:
    """The part of the demo that the README shows."""
    text = README.read_text(encoding="utf-8")
    return text.partition("$ make demo\n…\n")[2].partition("\n…\n$ make test")[0] or "nothing"


def run_demo(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MAILGRES, "demo", "--database-url", url],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_demo_shows_the_queue_and_leaves_nothing(connect: Connect, empty_database_url: str) -> None:
    databases = "SELECT array_agg(datname) FROM pg_database WHERE datname LIKE 'mailgres_demo%'"
    result = run_demo(empty_database_url)
    assert result.returncode == 0, result.stderr
    queue = result.stdout.partition("FROM email_queue ORDER BY id;")[2]
    for line in (
        "│ ana@example.com  │ welcome_user        │ default   │ pending │ True  │",
        "│ joao@example.com │ signup_confirmation │ acme      │ pending │ False │",
    ):
        assert line in queue
    assert "nobody@example.com" not in queue, "what was rolled back is not in the queue"
    assert "ERROR:  there is no template 'welcome_usr'\nHINT:  Known templates:" in result.stdout
    assert "│ ana@example.com  │ sent    │ 1       │" in queue, "retried after a simulated fault"
    assert "│ failed  │ 0       │ permanent   │ no such mailbox │" in queue
    assert "│ joao@example.com │ pending │ 0       │" in queue, "it waits for its time"
    assert "│ ana@example.com │ Welcome to Acme │" in queue, "what was rendered"
    assert shown_in_readme() in result.stdout
    assert "\x1b" not in result.stdout, "no colours in a pipe"
    hint = "HINT:"  # the database's words, as long as they are
    assert all(len(line) <= 80 for line in result.stdout.splitlines() if hint not in line)
    assert connect(empty_database_url).execute(databases).fetchone() == (None,)


def test_demo_without_a_server_is_one_clear_error() -> None:
    result = run_demo("postgresql://nobody@127.0.0.1:1/x")
    assert result.returncode == 1
    assert result.stderr.startswith("Error: ")
    assert "Hint: " in result.stderr
    assert "Traceback" not in result.stderr
