"""Find the SQL source and the migrations.

They are at the top of the repository, where people read them, and inside the package in a wheel.
Both are plain directories: mailgres does not run from a zip file, because alembic does not.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def sql_directory(package: Path = _PACKAGE) -> Path:
    """Return the directory of the SQL files that define the schema."""
    return _directory("sql", package)


def migrations_directory(package: Path = _PACKAGE) -> Path:
    """Return alembic's directory: env.py, versions/ and the frozen SQL."""
    return _directory("migrations", package)


def sql_files(directory: Path | None = None) -> list[Path]:
    """Return the files that make the schema, in the order in which they are applied."""
    root = directory or sql_directory()
    return sorted(root.rglob("*.sql"), key=lambda path: path.relative_to(root).parts)


def revisions(directory: Path | None = None) -> list[str]:
    """Return the revisions of the schema in this package, the oldest first."""
    frozen = ((directory or migrations_directory()) / "frozen").glob("*.up.sql")
    return sorted(path.name.removesuffix(".up.sql") for path in frozen)


def runbook_page(package: Path = _PACKAGE) -> Path:
    """Return the page that says what to do about each alert."""
    candidates = (package / "runbook.md", package.parent.parent / "docs" / "runbook.md")
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise FileNotFoundError("mailgres is installed without runbook.md: reinstall it")


def schema_revision() -> str:
    """Return the newest revision of the schema in this package."""
    return revisions()[-1]


def sql_digest(directory: Path | None = None) -> str:
    """Return a hash of the files that make the schema."""
    root = directory or sql_directory()
    found = hashlib.sha256()
    for path in sql_files(root):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:32]


def _directory(name: str, package: Path) -> Path:
    installed = package / name
    checkout = package.parent.parent / name
    for candidate in (installed, checkout):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"mailgres is installed without its {name}/ directory: reinstall it")
