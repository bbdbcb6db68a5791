"""How alembic reaches the database: one transaction, one migration at a time.

`mailgres migrate` hands over an open connection; a developer's `alembic upgrade head` does not,
and then DATABASE_URL names the database.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from alembic import context

from mailgres.migrate import VERSION_SCHEMA, VERSION_TABLE, engine, run_sql

if TYPE_CHECKING:
    from sqlalchemy import Connection

HERE = Path(__file__).parent


def run_script(name: str) -> None:
    """Run one of the files beside this one."""
    run_sql(context.get_context(), (HERE / name).read_text(encoding="utf-8"))


def print_migrations() -> None:
    """Print the SQL instead of running it."""
    context.configure(
        dialect_name="postgresql",
        literal_binds=True,
        version_table=VERSION_TABLE,
        version_table_schema=VERSION_SCHEMA,
    )
    with context.begin_transaction():
        run_script("before.sql")
        context.run_migrations()
        run_script("after.sql")


def run_migrations(connection: Connection) -> None:
    """Run the migrations: all of them, or none."""
    context.configure(
        connection=connection, version_table=VERSION_TABLE, version_table_schema=VERSION_SCHEMA
    )
    with context.begin_transaction():
        run_script("before.sql")
        # Only now, under the lock, is the answer to "what is there already?" worth anything.
        heads = context.get_context().get_current_heads()
        context.run_migrations()
        new_heads = context.get_context().get_current_heads()
        if not new_heads:
            run_script("gone.sql")
        else:
            run_script("again.sql" if new_heads == heads else "after.sql")
    context.config.attributes["change"] = (heads, new_heads)


if context.is_offline_mode():
    print_migrations()
elif (given := context.config.attributes.get("connection")) is not None:
    run_migrations(given)
else:
    with engine(os.environ.get("DATABASE_URL")).connect() as opened:
        run_migrations(opened)
