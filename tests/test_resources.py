"""The SQL is found in a checkout and in an installed package."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailgres import resources

ROOT = Path(__file__).resolve().parents[1]


def test_a_checkout_has_sql_and_migrations() -> None:
    assert resources.sql_directory() == ROOT / "sql"
    assert resources.migrations_directory() == ROOT / "migrations"
    assert resources.runbook_page() == ROOT / "docs" / "runbook.md"


def test_an_installed_package_has_sql_and_migrations(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "site-packages" / "mailgres"
    (package / "sql").mkdir(parents=True)
    (package / "migrations").mkdir()
    (package / "runbook.md").touch()
    assert resources.runbook_page(package) == package / "runbook.md"
    assert resources.sql_directory(package) == package / "sql"
    assert resources.migrations_directory(package) == package / "migrations"


def test_a_package_without_sql_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="installed without its sql/ directory"):
        resources.sql_directory(tmp_path / "a" / "b")
    with pytest.raises(FileNotFoundError, match="installed without runbook"):
        resources.runbook_page(tmp_path / "a" / "b")


def test_sql_files_are_applied_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("20_b/10.sql", "10_a/20.sql", "10_a/10.sql", "10_a/notes.md", "05.sql"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [path.relative_to(tmp_path).as_posix() for path in resources.sql_files(tmp_path)]
    assert found == ["05.sql", "10_a/10.sql", "10_a/20.sql", "20_b/10.sql"]
