"""`mailgres demo` through the console script, on the server of this run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.postgres import Connect

MAILGRES = Path(sys.executable).with_name("mailgres")


def run_demo(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MAILGRES, "demo"],
        env={**os.environ, "DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_shows_the_queue_and_leaves_nothing(connect: Connect, empty_database_url: str) -> None:
    databases = "SELECT array_agg(datname) FROM pg_database WHERE datname LIKE 'mailgres_demo%'"
    result = run_demo(empty_database_url)
    assert result.returncode == 0, result.stderr
    queue = result.stdout.partition("FROM email_queue ORDER BY id;")[2]
    for line in (
        " ana@example.com  | welcome_user        | default   | pending | True",
        " joao@example.com | signup_confirmation | acme      | pending | False",
    ):
        assert line in queue
    assert "nobody@example.com" not in queue, "what was rolled back is not in the queue"
    assert "ERROR:  there is no template 'welcome_usr'\nHINT:  Known templates:" in result.stdout
    assert " ana@example.com  | sent    | 1       |" in queue, "retried after a simulated fault"
    assert " | failed  | 0       | permanent   | no such mailbox (simulated)" in queue
    assert " joao@example.com | pending | 0       |" in queue, "it waits for its time"
    assert " ana@example.com | Welcome to Acme" in queue, "what was rendered"
    assert connect(empty_database_url).execute(databases).fetchone() == (None,)


def test_no_server_is_one_clear_error() -> None:
    result = run_demo("postgresql://nobody@127.0.0.1:1/x")
    assert result.returncode == 1
    assert result.stderr.startswith("Error: ")
    assert "Hint: " in result.stderr
    assert "Traceback" not in result.stderr
