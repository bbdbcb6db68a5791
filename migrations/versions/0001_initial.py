"""The whole schema of the first release."""

from mailgres.schema.revisions import run_frozen

revision = "0001_initial"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_frozen("0001_initial.up.sql")


def downgrade() -> None:
    run_frozen("0001_initial.down.sql")
