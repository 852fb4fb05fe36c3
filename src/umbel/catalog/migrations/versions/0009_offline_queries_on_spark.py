"""Offline queries run by Spark: finished parts instead of leases and positions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Replace the columns; jobs in progress begin anew."""
    op.add_column("offline_jobs", sa.Column("parts", sa.JSON, nullable=False, server_default="{}"))
    for name in ("epoch", "beat", "position"):
        op.drop_column("offline_jobs", name)
    op.execute("UPDATE offline_jobs SET attempts = 0, done = 0, taken = 0, failed = 0 WHERE status = 'RUNNING'")


def downgrade() -> None:
    """Jobs in progress begin anew."""
    op.add_column("offline_jobs", sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("offline_jobs", sa.Column("beat", sa.Float, nullable=False, server_default="0"))
    op.add_column("offline_jobs", sa.Column("position", sa.JSON, nullable=False, server_default="{}"))
    op.drop_column("offline_jobs", "parts")
