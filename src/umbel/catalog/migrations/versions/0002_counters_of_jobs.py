"""Counts are kept per job: batch numbers of different jobs mean different batches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table again; what was counted so far is the live job's."""
    op.rename_table("counters", "counters_before")
    op.create_table(
        "counters",
        sa.Column("job", sa.String(64), primary_key=True),
        sa.Column("dataset", sa.String(256), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("batch", sa.BigInteger, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO counters SELECT 'live', dataset, name, batch, value FROM counters_before")
    op.drop_table("counters_before")


def downgrade() -> None:
    """Forget the jobs."""
    op.rename_table("counters", "counters_of_jobs")
    op.create_table(
        "counters",
        sa.Column("dataset", sa.String(256), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("batch", sa.BigInteger, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO counters SELECT dataset, name, batch, SUM(value) FROM counters_of_jobs GROUP BY 1, 2, 3")
    op.drop_table("counters_of_jobs")
