"""deploy/cron: the line of the crontab, run as cron runs it."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from deploy.files import PROGRAM as INSTALLED
from deploy.files import read
from mailgres.janitor import JANITORS
from mailgres.testing import travel
from support.program import PROGRAM

LINE = re.compile(r"(?P<when>\S+ \S+ \S+ \S+ \S+) (?P<user>\w+) (?P<command>.+)")


def variables(crontab: str) -> dict[str, str]:
    found = re.findall(r"^([A-Z]+)=(.*)$", crontab, flags=re.MULTILINE)
    return {name: value.strip('"') for name, value in found}


def job(crontab: str) -> re.Match[str]:
    lines = [line for line in crontab.splitlines() if line and not line.startswith("#")]
    (found,) = (line for line in lines if not re.match(r"[A-Z]+=", line))
    match = LINE.fullmatch(found)
    assert match
    return match


def run(directory: Path, url: str | None) -> list[str]:
    """Do what cron does at its time, with paths of the test; return the lines of the log."""
    crontab = read("cron", "mailgres").replace(str(Path(INSTALLED).parent), str(PROGRAM.parent))
    if url:
        example = read("mailgres.env.example")
        env = re.sub(r"^DATABASE_URL=.*$", f"DATABASE_URL='{url}'", example, flags=re.MULTILINE)
        env += "MAILGRES_FROM_EMAIL='Acme & Söhne <mail@acme.example.com>'\n"
        (directory / "mailgres.env").write_text(env, encoding="utf-8")
    command = job(crontab)["command"]
    for path, ours in (("/etc/", directory), ("/var/log/mailgres/", directory)):
        assert path in command
        command = command.replace(path, f"{ours}/")
    shell = variables(crontab)["SHELL"]
    environment = {"PATH": variables(crontab)["PATH"], "LOGNAME": "mailgres", "HOME": "/"}
    done = subprocess.run(
        [shell, "-c", command],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("", ""), "cron would send an email"
    return (directory / "mailgres.log").read_text(encoding="utf-8").splitlines()


def test_the_crontab_has_the_form_that_cron_accepts() -> None:
    crontab = read("cron", "mailgres")
    found = job(crontab)
    assert found["when"] == "*/2 * * * *"
    assert "%" not in found["command"], "cron would end the line there"
    assert crontab.endswith("\n")


def test_the_cron_job_sends_runs_the_janitors_and_logs(
    conn: psycopg.Connection, database_url: str, tmp_path: Path
) -> None:
    enqueue = 'SELECT enqueue_email(NULL, \'welcome_user\', %s, \'{"name": "A", "product": "P"}\')'
    conn.execute(enqueue, ("ana@example.com",))
    conn.execute("SELECT mailgres.claim('killed', 1)")
    travel(conn, timedelta(hours=1))
    conn.execute(enqueue, ("kim@example.com",))
    for _ in range(2):  # what the first took back, the second sends at the latest
        log = run(tmp_path, database_url)
    lines = [json.loads(line) for line in log if line.startswith("{")]
    reports = [line for line in lines if "level" not in line]  # the others are the log itself
    duties = [one for one, janitor in JANITORS.items() if janitor.locked]
    assert [one.get("janitor") for one in reports] == [None, *duties, None, *duties]
    assert sum(one["sent"] for one in reports if "sent" in one) == 2
    assert conn.execute("SELECT DISTINCT status FROM email_queue").fetchall() == [("sent",)]
    assert conn.execute("SELECT count(*) FROM mailgres.captured").fetchone() == (2,)


def test_the_cron_job_logs_errors(tmp_path: Path) -> None:
    log = "\n".join(run(tmp_path, "postgresql://127.0.0.1:1/app"))
    assert "Cannot connect" in log
    assert "Traceback" not in log


def test_the_cron_job_names_its_missing_environment_file(tmp_path: Path) -> None:
    assert "mailgres.env" in run(tmp_path, None)[0]


def test_logrotate_is_about_the_same_file() -> None:
    (path,) = re.findall(r">> (\S+)", read("cron", "mailgres"))
    assert f"\n{path} {{\n" in read("cron", "logrotate")


@pytest.mark.parametrize("page", ["cron", "systemd"])
def test_the_guide_installs_where_the_files_look(page: str) -> None:
    guide = read(page, "README.md")
    assert f"python3 -m venv {Path(INSTALLED).parent.parent}" in guide
    assert "/etc/mailgres.env" in guide
