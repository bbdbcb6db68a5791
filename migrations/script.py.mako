"""${message}."""

from mailgres.schema.revisions import run_frozen

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    run_frozen("${up_revision}.up.sql")


def downgrade() -> None:
    run_frozen("${up_revision}.down.sql")
