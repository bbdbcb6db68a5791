"""`mailgres migrate` as an operator sees it."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from alembic import op
from click.testing import CliRunner, Result

from mailgres import migrate
from mailgres.cli import main
from support.postgres import run_script
from support.schema import objects


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, arguments, env=env)


def two_lines(result: Result) -> tuple[str, str]:
    """Return the two lines of an error, after checking that there is nothing else."""
    assert result.exit_code == 1
    assert result.stdout == ""
    what, hint = result.stderr.splitlines()
    assert what.startswith("Error: ")
    assert hint.startswith("Hint: ")
    return what, hint


def test_migrate_help_shows_examples() -> None:
    assert "mailgres migrate --sql > mailgres.sql" in run("migrate", "-h").output


@pytest.mark.parametrize("variable", ["DATABASE_URL", "SUPABASE_DB_URL"])
def test_migrate_and_check(empty_database_url: str, variable: str) -> None:
    env = {variable: empty_database_url}
    behind = run("migrate", "--check", env=env)
    assert "has no mailgres schema" in two_lines(behind)[0]
    assert two_lines(behind)[1] == "Hint: Run `mailgres migrate`."
    assert run("migrate", env=env).output == "Created the schema at 0001_initial.\n"
    assert run("migrate", env=env).output == "Nothing to do: the schema is at 0001_initial.\n"
    current = run("migrate", "--check", env=env)
    assert (current.exit_code, current.output) == (0, "The schema is up to date.\n")


def test_the_option_goes_before_the_variable(empty_database_url: str) -> None:
    env = {"DATABASE_URL": "postgresql://127.0.0.1:1/none"}
    assert run("migrate", "--database-url", empty_database_url, env=env).exit_code == 0


def test_it_says_from_where_to_where(monkeypatch: pytest.MonkeyPatch) -> None:
    change = migrate.Change("0001_initial", "0002_next")
    monkeypatch.setattr(migrate, "upgrade", lambda *_, **__: change)
    assert run("migrate").output == "Migrated the schema from 0001_initial to 0002_next.\n"


def test_notices_of_the_server_are_shown(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = migrate.run_frozen

    def with_notice(name: str) -> None:
        real(name)
        migrate.run_sql(
            op.get_context(),
            "DO $$ BEGIN RAISE NOTICE 'read this'; END $$; CREATE SCHEMA IF NOT EXISTS mailgres;",
        )

    monkeypatch.setattr(migrate, "run_frozen", with_notice)
    result = run("migrate", env={"DATABASE_URL": empty_database_url})
    assert "read this" in result.stderr
    assert "skipping" not in result.stderr
    assert result.stdout == "Created the schema at 0001_initial.\n"


def test_sql_needs_no_database(empty_database_url: str) -> None:
    result = run("migrate", "--sql")
    assert result.exit_code == 0
    assert result.stderr == ""
    run_script(empty_database_url, result.stdout, "-1", "-v", "ON_ERROR_STOP=1")
    assert run("migrate", "--check", "--database-url", empty_database_url).exit_code == 0


def test_sql_a_second_time_changes_nothing(database_url: str) -> None:
    before = objects(database_url)
    with pytest.raises(AssertionError, match='relation "schema_version" already exists'):
        run_script(database_url, migrate.script(), "-v", "ON_ERROR_STOP=1")
    assert objects(database_url) == before


def test_sql_from_an_unknown_revision() -> None:
    what, hint = two_lines(run("migrate", "--sql", "--from", "0000_none"))
    assert what == "Error: There is no revision '0000_none' to start from"
    assert "--check" in hint


@pytest.mark.parametrize(
    "arguments", [["--sql", "--check"], ["--from", "0001_initial"], ["--nonsense"]]
)
def test_migrate_wrong_options(arguments: list[str]) -> None:
    result = run("migrate", *arguments)
    assert result.exit_code == 2
    assert "Usage: " in result.stderr


def test_migrate_no_database() -> None:
    assert two_lines(run("migrate")) == (
        "Error: No database was named",
        "Hint: Set DATABASE_URL or pass --database-url; `mailgres dev` starts one here.",
    )


@pytest.mark.parametrize("mode", [[], ["--check"]])
def test_migrate_unreachable(mode: list[str]) -> None:
    url = "postgresql://me:secret@127.0.0.1:1/mail"
    what, hint = two_lines(run("migrate", *mode, env={"DATABASE_URL": url}))
    assert re.match(r"Error: Cannot connect to 127\.0\.0\.1:1/mail: .*[Cc]onnection refused", what)
    assert "Check that the server runs" in hint


@pytest.mark.parametrize("url", ["secret", "postgresql://me:se@cret@host/mail", "http://secret"])
def test_a_bad_url_is_not_repeated(url: str) -> None:
    what, hint = two_lines(run("migrate", env={"DATABASE_URL": url}))
    assert "cret" not in what + hint
    assert "percent-encode" in hint


def test_migrate_a_failure(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("CREATE TABLE email_queue (id int)")
    what, hint = two_lines(run("migrate", env={"DATABASE_URL": empty_database_url}))
    assert what.endswith('relation "email_queue" already exists')
    assert "Nothing was changed" in hint


def test_alembic_ini_is_for_developers_only(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alembic.ini").write_text("[alembic]\nscript_location = nowhere\n")
    monkeypatch.chdir(tmp_path)
    assert run("migrate", "--database-url", empty_database_url).exit_code == 0
