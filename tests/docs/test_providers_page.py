"""Every block of docs/providers.md runs, and prints what the page says it prints."""

from __future__ import annotations

import re
import shlex
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb

from doubles import smtp
from doubles.resend import KEY, ResendDouble, serve
from mailgres.settings import load
from support.program import Program
from support.queue import Clock

PAGE = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


@pytest.mark.parametrize("text", blocks("sh"))
def test_providers_page_environments_are_complete(text: str, tmp_path: Path) -> None:
    words = (shlex.split(line)[1] for line in text.splitlines())
    settings = load(dict(word.split("=", 1) for word in words), {}, tmp_path)
    settings.check_providers()
    assert settings.from_email
    assert settings.remarks() == ()


def test_the_example_file_of_the_page_is_complete(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    path = tmp_path / "mailgres.toml"
    path.write_text(text)
    path.chmod(0o600)
    settings = load({}, {}, tmp_path)
    settings.check_providers()
    assert [one.name for one in settings.accounts()] == ["resend", "smtp", "resend-acme"]
    assert settings.remarks() == ()


def steps() -> list[tuple[str, str]]:
    """Every command of the page and what it prints."""
    text = "".join(blocks("console"))
    found = re.findall(r"^\$ mailgres (.*)\n((?:[^$].*\n)*)", text, re.MULTILINE)
    assert len(found) == text.count("$ ")
    return found


def test_the_commands_of_the_page_print_what_it_shows(
    database_url: str, conn: psycopg.Connection
) -> None:
    Clock(conn, datetime(2026, 11, 16, 12, tzinfo=UTC))
    names = ["resend", "smtp", "resend-acme"]
    registered = [
        {
            "name": name,
            "kind": name.partition("-")[0],
            "idempotent": name != "smtp",
            "batch_size": 1,
            "own_route": "-" in name,
        }
        for name in names
    ]
    conn.execute("SELECT mailgres.use_providers(%s)", [Jsonb(registered)])
    conn.execute(
        "INSERT INTO email_queue (template_type, recipient_email, ready)"
        " SELECT 'welcome_user', 'ana@example.com', true FROM generate_series(1, 1000)"
    )
    with serve(ResendDouble()) as resend, _mail_server() as server:
        env = {
            "MAILGRES_PROVIDERS": ",".join(names),
            "MAILGRES_RESEND_API_URL": resend.url,
            "RESEND_API_KEY": KEY,
            "MAILGRES_RESEND_ACME_API_KEY": KEY,
            "MAILGRES_SMTP_URL": server.url,
        }
        program = Program(database_url, env)
        for command, printed in steps():
            assert program(*shlex.split(command)) == printed, command


def _mail_server() -> AbstractContextManager[smtp.SmtpDouble]:
    """A server that asks for a login, as the URL of the page has one."""
    return smtp.serve(smtp.SmtpDouble(user="user", password="p@ss"))


def test_the_sql_of_the_page_runs(conn: psycopg.Connection) -> None:
    for text in blocks("sql"):
        conn.execute(text)


def test_every_block_of_the_page_on_providers_is_tested() -> None:
    assert {kind for kind, _ in BLOCKS} == {"sh", "toml", "console", "sql"}
