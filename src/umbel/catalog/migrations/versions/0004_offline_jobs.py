"""Offline queries that a server works on by itself."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "offline_jobs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("branch", sa.String(256), nullable=False),
        sa.Column("status", sa.String(16), nullable=False, index=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("asked", sa.LargeBinary, nullable=False),
        sa.Column("rows", sa.LargeBinary, nullable=True),
        sa.Column("bucket", sa.Text, nullable=False),
        sa.Column("prefix", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("beat", sa.Float, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("is_sealed", sa.Boolean, nullable=False),
        sa.Column("position", sa.JSON, nullable=False),
        sa.Column("done", sa.Float, nullable=False),
        sa.Column("taken", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("offline_jobs")
