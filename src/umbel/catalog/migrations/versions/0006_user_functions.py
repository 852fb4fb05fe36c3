"""Functions that fail, and the rows they fail on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "verdicts",
        sa.Column("function", sa.String(64), primary_key=True),
        sa.Column("row", sa.String(64), primary_key=True),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_table(
        "suspects",
        sa.Column("function", sa.String(64), primary_key=True),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("suspects")
    op.drop_table("verdicts")
