"""Looking at a schema, and making migrations that misbehave."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import psycopg

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

REVISION = """
from mailgres.migrate import run_frozen

revision = "{name}"
down_revision = "0001_initial"


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
        for path in resources.sql_files():
            connection.execute(path.read_bytes())


def copy_migrations(source: Path, target: Path) -> Path:
    """Copy the migrations, to change them; a copy waits only a moment for locks."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    before = target / "before.sql"
    text = before.read_text().replace("'60s'", "'100ms'").replace("'5s'", "'100ms'")
    before.write_text(text)
    return target


def add_revision(migrations: Path, up: str, down: str = "", name: str = "0002_next") -> None:
    """Add a revision after the initial one."""
    (migrations / "versions" / f"{name}.py").write_text(REVISION.format(name=name))
    (migrations / "frozen" / f"{name}.up.sql").write_text(up)
    (migrations / "frozen" / f"{name}.down.sql").write_text(down)
