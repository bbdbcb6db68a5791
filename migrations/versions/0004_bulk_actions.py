"""Bulk actions."""

from mailgres.schema.revisions import run_frozen

revision = "0004_bulk_actions"
down_revision = "0003_suppression_expiry_index"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_frozen("0004_bulk_actions.up.sql")


def downgrade() -> None:
    run_frozen("0004_bulk_actions.down.sql")
