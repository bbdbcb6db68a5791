"""Looking at a schema, and making migrations that misbehave."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import psycopg

import freeze
from mailgres import resources

if TYPE_CHECKING:
    from pathlib import Path

OBJECTS = """
    SELECT 'relation ' || relname FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v', 'm', 'S', 'p', 'f')
    UNION ALL
    SELECT 'function ' || oid::regprocedure FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'type ' || typname FROM pg_type
    WHERE typnamespace = 'public'::regnamespace AND typrelid = 0 AND typelem = 0
    UNION ALL
    SELECT 'schema ' || nspname FROM pg_namespace
    WHERE nspname NOT IN ('public', 'information_schema') AND nspname NOT LIKE 'pg\\_%'
    ORDER BY 1
"""

VERSION_TABLE = """
    CREATE TABLE mailgres.schema_version (
        version_num varchar(32) CONSTRAINT schema_version_pkc PRIMARY KEY)
"""
HEAD = resources.schema_revision()
"""The newest revision."""
NEXT = f"{int(HEAD[:4]) + 1:04}_next"
"""The one after it, of tests."""
REVISION = """
from mailgres.schema.revisions import run_frozen

revision = "{name}"
down_revision = "{before}"


def upgrade() -> None:
    run_frozen("{name}.up.sql")


def downgrade() -> None:
    run_frozen("{name}.down.sql")
"""


def objects(url: str) -> list[str]:
    """Return what is in a database: relations, functions, types in public, and other schemas."""
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute(OBJECTS)]


def apply_sql(url: str) -> None:
    """Apply `sql/` itself, without any migration."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA mailgres")
        connection.execute(VERSION_TABLE)
        for path in resources.sql_files():
            connection.execute(path.read_bytes())
        connection.execute("SET LOCAL mailgres.known_objects = 'none'")
        connection.execute("SELECT mailgres.secure()")


def copy_migrations(source: Path, target: Path) -> Path:
    """Copy the migrations, to change them."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def add_revision(
    migrations: Path,
    up: str,
    down: str = "",
    name: str = "",
    before: str = "",
) -> None:
    """Add a revision, by default one after the newest."""
    name, before = name or NEXT, before or HEAD
    (migrations / "versions" / f"{name}.py").write_text(REVISION.format(name=name, before=before))
    (migrations / "frozen" / f"{name}.up.sql").write_text(up)
    (migrations / "frozen" / f"{name}.down.sql").write_text(down)
    (migrations / "frozen" / "SHA256SUMS").write_text(freeze.checksums(migrations / "frozen"))
