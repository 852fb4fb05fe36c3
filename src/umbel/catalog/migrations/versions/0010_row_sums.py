"""Checksums of rows, in SQLite; they are noted after the migration."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the table."""
    if op.get_bind().dialect.name == "sqlite":
        op.create_table(
            "row_sums",
            sa.Column("of", sa.String(64), primary_key=True),
            sa.Column("row", sa.Text, primary_key=True),
            sa.Column("sum", sa.BigInteger, nullable=False),
            sqlite_with_rowid=False,
        )


def downgrade() -> None:
    """Drop the table, and the triggers that write it."""
    if op.get_bind().dialect.name == "sqlite":
        triggers = sa.text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'forget%'")
        for name in op.get_bind().scalars(triggers).all():
            op.execute(f"DROP TRIGGER {name}")
        op.drop_table("row_sums")
