"""Erased keys of each branch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "erasures",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("branch", sa.String(256), nullable=False, index=True),
        sa.Column("dataset", sa.String(256), nullable=False),
        sa.Column("identity", sa.String(64), nullable=False),
        sa.Column("keys", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("erasures")
