"""deploy/supabase: its SQL, run for real; pg_cron, pg_net and Vault are stood in for."""

from __future__ import annotations

import re
import subprocess
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import requests

from deploy.files import calls, read
from support.cluster import PASSWORD, Cluster
from support.program import PROGRAM, Program
from worker.harness import until
from worker.test_pgbouncer import free_port

SECRET = "0123456789abcdef" * 4
WELCOME = """SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com',
    '{"name": "Ana", "product": "Acme"}')"""


def run(connection: psycopg.Connection, *names: str) -> None:
    """Run a file in the SQL editor."""
    text = read(*names)
    # There is nothing to create: the doubles are there.
    text = re.sub(r"^CREATE EXTENSION IF NOT EXISTS pg_(cron|net);$", "", text, flags=re.MULTILINE)
    connection.execute(text.encode())


def all_rows(connection: psycopg.Connection, query: str) -> list[Any]:
    return connection.execute(query).fetchall()


@pytest.fixture
def editor(project: str) -> Any:
    with psycopg.connect(project, autocommit=True) as connection:
        yield connection


@pytest.fixture
def vault(editor: psycopg.Connection) -> None:
    """Step 4."""
    editor.execute("SELECT vault.create_secret('https://mail.example.com/', 'mailgres_url')")
    editor.execute("SELECT vault.create_secret(%s, 'mailgres_serve_secret')", (SECRET,))


def tick(editor: psycopg.Connection) -> None:
    """Do what pg_cron does every two minutes."""
    ((command, schedule),) = all_rows(
        editor, "SELECT command, schedule FROM cron.job WHERE jobname = 'mailgres-process'"
    )
    assert schedule == "*/2 * * * *"
    editor.execute(command)


@pytest.mark.usefixtures("vault")
def test_the_job_calls_the_service_with_the_secret_out_of_vault(editor: psycopg.Connection) -> None:
    for _ in range(2):  # again is fine
        run(editor, "supabase", "process.sql")
    tick(editor)
    ((url, headers, body, timeout),) = all_rows(
        editor, "SELECT url, headers, body, timeout_milliseconds FROM net.called"
    )
    assert url == "https://mail.example.com/functions/v1/process-email-queue"
    assert headers == {"Content-Type": "application/json", "Authorization": f"Bearer {SECRET}"}
    assert 1 <= body["batchSize"] <= 1000
    assert timeout < 120_000, "it should have ended when the next call comes"


def test_the_call_makes_the_service_send(editor: psycopg.Connection, project: str) -> None:
    """What pg_net would post is posted to a running `mailgres serve`."""
    port = free_port()
    editor.execute("SELECT vault.create_secret(%s, 'mailgres_url')", (f"http://127.0.0.1:{port}",))
    editor.execute("SELECT vault.create_secret(%s, 'mailgres_serve_secret')", (SECRET,))
    run(editor, "supabase", "process.sql")
    editor.execute(WELCOME)
    tick(editor)
    ((url, headers, body),) = all_rows(editor, "SELECT url, headers, body FROM net.called")
    environment = {
        "DATABASE_URL": project,
        "LC_ALL": "C.UTF-8",
        "MAILGRES_SERVE_SECRET": SECRET,
        "MAILGRES_SERVE_PORT": str(port),
    }
    with subprocess.Popen([PROGRAM, "serve"], env=environment, cwd="/") as service:
        try:
            until(lambda: answers(f"http://127.0.0.1:{port}/healthz"), "the service answers")
            answer = requests.post(url, json=body, headers=headers, timeout=60)
        finally:
            service.terminate()
    assert (answer.status_code, answer.json()["sent"]) == (200, 1)


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.ConnectionError:
        return False


@pytest.mark.usefixtures("vault")
def test_a_new_secret_needs_no_new_job(editor: psycopg.Connection) -> None:
    run(editor, "supabase", "process.sql")
    (rotate,) = re.findall(r"`(SELECT vault\.update_secret.*?;)`", read("supabase", "README.md"))
    editor.execute(rotate.replace("…", "new" * 8))
    tick(editor)
    ((header,),) = all_rows(editor, "SELECT headers->>'Authorization' FROM net.called")
    assert header == f"Bearer {'new' * 8}"


@pytest.mark.parametrize("there", ["mailgres_url", "mailgres_serve_secret", None])
def test_the_supabase_job_fails_without_its_secrets(
    editor: psycopg.Connection, there: str | None
) -> None:
    run(editor, "supabase", "process.sql")
    if there:
        editor.execute("SELECT vault.create_secret('x', %s)", (there,))
    with pytest.raises(psycopg.errors.RaiseException, match="Vault lacks the secret"):
        tick(editor)
    assert all_rows(editor, "SELECT 1 FROM net.called") == []


@pytest.mark.usefixtures("vault")
def test_no_job_holds_the_secret(editor: psycopg.Connection) -> None:
    run(editor, "supabase", "process.sql")
    run(editor, "pg_cron", "janitors.sql")
    for (command,) in all_rows(editor, "SELECT command FROM cron.job"):
        assert SECRET not in command
        assert "mail.example.com" not in command


@pytest.mark.usefixtures("vault")
def test_check_sql_finds_what_is_broken_on_supabase(editor: psycopg.Connection) -> None:
    check = read("supabase", "check.sql")
    run(editor, "supabase", "process.sql")
    assert {holds for _, holds in all_rows(editor, check)} == {True}

    def broken_by(statement: str) -> list[str]:
        with editor.transaction(force_rollback=True):
            editor.execute(statement.encode())
            return [what for what, holds in all_rows(editor, check) if not holds]

    enqueue = "GRANT EXECUTE ON FUNCTION enqueue_email TO anon"
    assert broken_by(enqueue) == ["anon and authenticated cannot enqueue"]
    select = "GRANT SELECT ON email_queue TO authenticated"
    assert broken_by(select) == ["anon and authenticated cannot read the queue"]
    usage = "GRANT USAGE ON SCHEMA mailgres TO anon"
    assert broken_by(usage) == ["anon and authenticated cannot use the schema mailgres"]
    for secret in ("eyJhbGciOiJIUzI1NiJ9.eyJyb2xlIjoic2VydmljZSJ9.c2ln", f"Bearer {SECRET}"):
        job = f"SELECT cron.schedule('old', '* * * * *', 'SELECT ''{secret}''')"
        assert broken_by(job) == ["no job of pg_cron holds a secret"]
    vault = "DELETE FROM vault.secrets WHERE name = 'mailgres_url'"
    assert broken_by(vault) == ["Vault has the address and the secret of mailgres serve"]
    assert broken_by("UPDATE cron.job SET active = false") == ["pg_cron calls it"]


def test_the_user_of_the_grants_can_work_the_queue_and_nothing_else(
    editor: psycopg.Connection, project: str, cluster: Cluster
) -> None:
    for _ in range(2):
        run(editor, "supabase", "grants.sql")
    editor.execute(WELCOME)
    # as \password does, with which psql leaves no trace
    cluster.admin.execute(f"ALTER ROLE mailgres_worker_login PASSWORD '{PASSWORD}'")
    parts = urlsplit(project)
    place = f"mailgres_worker_login:{PASSWORD.replace(' ', '%20')}@{parts.hostname}:{parts.port}"
    program = Program(parts._replace(netloc=place).geturl())
    done = program.run("process", "--until-empty")
    assert '"sent": 1' in done.stdout, done.stderr
    assert len(program("janitor", "--all").splitlines()) > 5
    with psycopg.connect(program.url, autocommit=True) as app:
        for statement in ("SELECT recipient_email FROM email_queue", WELCOME, "CREATE TABLE x ()"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                app.execute(statement)


def test_the_unschedule_script_removes_every_job_of_mailgres(editor: psycopg.Connection) -> None:
    editor.execute("SELECT cron.schedule('another''s', '0 0 * * *', 'SELECT 1')")
    run(editor, "supabase", "process.sql")
    run(editor, "pg_cron", "janitors.sql")
    run(editor, "pg_cron", "unschedule.sql")
    assert all_rows(editor, "SELECT jobname FROM cron.job") == [("another's",)]


def test_the_supabase_guide_names_the_right_ports() -> None:
    rows = re.findall(
        r"^\| (`mailgres.*?) \| .* \| (\d+) \|$", read("supabase", "README.md"), re.MULTILINE
    )
    ports = {
        words[0]: port for commands, port in rows for words in calls(commands.replace("`", "\n"))
    }
    assert ports["migrate"] == ports["worker"] == "5432"
    assert ports["process"] == "6543"
