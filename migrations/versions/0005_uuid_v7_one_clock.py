"""Uuid v7 one clock."""

from mailgres.schema.revisions import run_frozen

revision = "0005_uuid_v7_one_clock"
down_revision = "0004_bulk_actions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_frozen("0005_uuid_v7_one_clock.up.sql")


def downgrade() -> None:
    run_frozen("0005_uuid_v7_one_clock.down.sql")
