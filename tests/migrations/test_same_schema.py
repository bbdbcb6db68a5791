"""However the schema gets there, it is the one in `sql/`."""

from __future__ import annotations

from pathlib import Path

import alembic.config
import psycopg
import pytest

from mailgres import migrate
from support.postgres import Server, dump, run_script
from support.schema import apply_sql

INI = Path(__file__).parents[2] / "alembic.ini"


@pytest.fixture(scope="module")
def truth(server: Server) -> str:
    """The dump of a database to which `sql/` was applied."""
    with server.database() as url:
        apply_sql(url)
        return dump(url)


def test_an_upgrade_builds_the_schema_of_sql(
    truth: str, empty_database_url: str, migrations: Path
) -> None:
    migrate.upgrade(empty_database_url, directory=migrations)
    assert dump(empty_database_url) == truth


def test_alembic_builds_the_schema_of_sql(
    truth: str, empty_database_url: str, monkeypatch: pytest.MonkeyPatch, migrations: Path
) -> None:
    if migrations.parent != INI.parent:
        pytest.skip("sql/ is not frozen: run `make freeze`")
    monkeypatch.setenv("DATABASE_URL", empty_database_url)
    alembic.config.main(["-c", str(INI), "upgrade", "head"])
    assert dump(empty_database_url) == truth


@pytest.mark.parametrize("arguments", [[], ["-1"], ["-1", "-v", "ON_ERROR_STOP=1"]])
def test_the_printed_script_builds_the_schema_of_sql(
    truth: str, empty_database_url: str, migrations: Path, arguments: list[str]
) -> None:
    output = run_script(empty_database_url, migrate.script(directory=migrations), *arguments)
    assert "ERROR" not in output
    assert dump(empty_database_url) == truth
    migrate.check(empty_database_url, directory=migrations)


def test_upgrade_downgrade_and_upgrade_build_the_schema_of_sql(
    truth: str, empty_database_url: str, migrations: Path
) -> None:
    migrate.upgrade(empty_database_url, directory=migrations)
    migrate.downgrade(empty_database_url, directory=migrations)
    migrate.upgrade(empty_database_url, directory=migrations)
    assert dump(empty_database_url) == truth


def test_the_search_path_of_the_role_does_not_matter(
    truth: str, empty_database_url: str, migrations: Path
) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA elsewhere")
    migrate.upgrade(f"{empty_database_url}?options=-csearch_path%3Delsewhere", directory=migrations)
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA elsewhere")
    assert dump(empty_database_url) == truth
