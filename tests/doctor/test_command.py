"""`mailgres doctor` as an operator sees it."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg

from mailgres.doctor import NAMES
from support.program import Program

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"


def test_doctor_prints_only_good_findings_for_a_healthy_database(mailgres: Program) -> None:
    printed = mailgres("doctor", "--offline").splitlines()
    assert printed[0].startswith("ok       database: ")
    assert printed[-1].endswith(" good")
    assert "error" not in printed[-1]
    assert "\x1b" not in "".join(printed), "no colours for a pipe"


def test_errors_have_a_command_and_an_exit_code(
    conn: psycopg.Connection, mailgres: Program
) -> None:
    conn.execute("ALTER TABLE email_logs DISABLE ROW LEVEL SECURITY")
    done = mailgres.run("doctor", "--offline", "--quiet")
    assert (done.returncode, done.stderr) == (1, "")
    first, fix, summary = done.stdout.splitlines()
    assert first == "error    row-security: public.email_logs has no row security"
    assert fix.strip().startswith('→ psql "$DATABASE_URL" -c ')
    assert summary == "1 error"


def test_fixes_are_aimed_at_the_database_that_was_examined(
    conn: psycopg.Connection, database_url: str, tmp_path: Path
) -> None:
    """Wherever its URL is from; and the URL itself, with its password, is not printed."""
    conn.execute("ALTER TABLE email_logs DISABLE ROW LEVEL SECURITY")
    conn.execute("DROP INDEX email_queue_due_idx")
    file = tmp_path / "its $HOME.toml"
    file.write_text(f'database_url = "{database_url}"\n', encoding="utf-8")
    file.chmod(0o600)
    other = "postgresql://127.0.0.1:1/other"
    examine = ("doctor", "--offline", "--json", "--only", "row-security", "--only")
    flag = "'<the URL from --database-url>'"
    for arguments, env, named in (
        ((), {"MAILGRES_DATABASE_URL": database_url}, '"$MAILGRES_DATABASE_URL"'),
        (("--database-url", database_url), {}, flag),
        (("--config", str(file)), {"DATABASE_URL": ""}, f"'<the URL from {file} line 1>'"),
    ):
        done = Program(other).run(*examine, "missing-indexes", *arguments, **env)
        index, rows = sorted(one["fix"] for one in json.loads(done.stdout))
        assert rows.startswith(f"psql {named} -c ")
        assert index.endswith(f" | psql -v ON_ERROR_STOP=1 {named}")
        assert index.startswith(f"mailgres doctor --sql --database-url {flag}") is bool(
            named == flag
        )
        assert database_url not in done.stdout


def test_doctor_json_lists_every_check_and_exits_with_1(
    conn: psycopg.Connection, mailgres: Program
) -> None:
    conn.execute("DROP INDEX email_queue_urgent_idx")
    done = mailgres.run("doctor", "--offline", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(done.stdout)
    assert {one["check"] for one in found} == set(NAMES)
    (wrong,) = [one for one in found if one["severity"] == "error"]
    assert wrong.keys() == {"check", "severity", "message", "fix"}
    assert wrong["check"] == "missing-indexes"


def test_doctor_without_a_database_runs_the_other_checks() -> None:
    program = Program("postgresql://u:hidden@127.0.0.1:1/x")
    done = program.run("doctor", "--offline", "--as-worker", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    found = {one["check"]: one for one in json.loads(done.stdout)}
    assert found["database"]["severity"] == "error"
    assert found["grants"]["message"] == "not checked: no database"
    assert "not checked" not in found["settings"]["message"]
    assert "hidden" not in done.stdout


def test_doctor_without_a_database_url_says_what_to_set() -> None:
    done = Program("").run("doctor", "--offline")
    assert done.returncode == 1
    assert "No database was named" in done.stdout
    assert "Traceback" not in done.stderr


def test_doctor_without_a_schema_names_migrate(empty_database_url: str) -> None:
    done = Program(empty_database_url).run("doctor", "--offline", "--json")
    found = {one["check"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 1
    assert found["schema-version"]["fix"] == "mailgres migrate"
    assert found["postgresql"]["severity"] == "ok"
    assert found["stuck-emails"]["message"].startswith("not checked: see schema-version")


def test_doctor_only_runs_one_check(mailgres: Program) -> None:
    (found,) = mailgres.json("doctor", "--only", "grants")
    assert found["check"] == "grants"
    assert "is not one of" in mailgres.misused("doctor", "--only", "grant")


def test_doctor_sql_prints_what_restores_the_schema(
    conn: psycopg.Connection, mailgres: Program
) -> None:
    assert mailgres("doctor", "--sql") == "-- Nothing differs.\n"
    conn.execute("DROP FUNCTION public.calculate_next_retry_time")
    conn.execute("ALTER TABLE email_queue DROP CONSTRAINT email_queue_state")
    printed = mailgres("doctor", "--sql")
    assert "-- function public.calculate_next_retry_time(int) is missing" in printed
    assert "SELECT mailgres.replace_objects(r.objects)" in printed
    assert "-- by hand: constraint public.email_queue.email_queue_state is missing" in printed
    conn.execute(printed.encode())
    done = mailgres.run("doctor", "--only", "schema-drift", "--json")
    assert [one["message"].split()[0] for one in json.loads(done.stdout)] == ["constraint"]


def test_doctor_changes_nothing(conn: psycopg.Connection, mailgres: Program) -> None:
    conn.execute("SELECT enqueue_email(NULL, 'welcome_user', 'ana@example.com')")
    before = conn.execute("SELECT q::text, q.xmin::text FROM email_queue q").fetchall()
    mailgres("doctor", "--offline")
    assert conn.execute("SELECT q::text, q.xmin::text FROM email_queue q").fetchall() == before


def test_every_check_is_on_the_page_on_the_doctor() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip(" `") for line in page.splitlines() if line.startswith("| `")]
    assert rows == list(NAMES)
