"""`mailgres dev` through the console script: it runs, an email arrives, Ctrl-C ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg

MAILGRES = Path(sys.executable).with_name("mailgres")


def test_an_email_arrives(empty_database_url: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [MAILGRES, "dev"],
        env={**os.environ, "DATABASE_URL": empty_database_url},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = iter(process.stdout.readline, "Ctrl-C ends it.\n")
        assert f"DATABASE_URL={empty_database_url}\n" in list(said)
        with psycopg.connect(empty_database_url, autocommit=True) as conn:
            conn.execute("SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com')")
            deadline = time.monotonic() + 30
            arrived = "SELECT message->>'to' FROM mailgres.captured"
            while not (rows := conn.execute(arrived).fetchall()) and time.monotonic() < deadline:
                time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert rows == [("ana@example.com",)]
