"""How alembic reaches the database: one transaction, one migration at a time.

`mailgres migrate` hands over an open connection; a developer's `alembic upgrade head` does not,
and then DATABASE_URL names the database.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from alembic import context

from mailgres import migrate
from mailgres.schema import revisions
from mailgres.schema.sources import own

if TYPE_CHECKING:
    from sqlalchemy import Connection


def run_migrations(connection: Connection) -> None:
    """Run the revisions and replace what differs: all of it, or nothing."""
    attributes = context.config.attributes
    context.configure(
        connection=connection,
        version_table=migrate.VERSION_TABLE,
        version_table_schema=migrate.VERSION_SCHEMA,
    )
    with context.begin_transaction():
        running = context.get_context()
        revisions.start_transaction(running)
        # Only now, under the lock, is the answer to "what is there already?" worth anything.
        heads = running.get_current_heads()
        revisions.before_revisions(running, attributes.get("release"))
        context.run_migrations()
        new_heads = running.get_current_heads()
        replaced = revisions.after_revisions(
            running,
            attributes.get("sources") or own(),
            attributes.get("release"),
            changed=heads != new_heads,
        )
    attributes["change"] = (heads, new_heads, replaced)


if context.is_offline_mode():
    raise SystemExit("Error: `mailgres migrate --sql` prints the SQL")
if (given := context.config.attributes.get("connection")) is not None:
    run_migrations(given)
else:
    with migrate.engine(os.environ.get("DATABASE_URL")).connect() as opened:
        run_migrations(opened)
