"""Delivery alerts."""

from mailgres.schema.revisions import run_frozen

revision = "0002_delivery_alerts"
down_revision = "0001_initial"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_frozen("0002_delivery_alerts.up.sql")


def downgrade() -> None:
    run_frozen("0002_delivery_alerts.down.sql")
