"""Commits that wait for their backfill, and state due for deletion."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make column and table; what was committed before is in force."""
    op.add_column("commits", sa.Column("waits", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "removals",
        sa.Column("owner", sa.String(64), primary_key=True),
        sa.Column("log", sa.String(512), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("removals")
    op.drop_column("commits", "waits")
