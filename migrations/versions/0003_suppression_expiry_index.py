"""Suppression expiry index."""

from mailgres.schema.revisions import run_frozen

revision = "0003_suppression_expiry_index"
down_revision = "0002_delivery_alerts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_frozen("0003_suppression_expiry_index.up.sql")


def downgrade() -> None:
    run_frozen("0003_suppression_expiry_index.down.sql")
