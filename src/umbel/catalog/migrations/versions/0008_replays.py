"""Replays of dead letters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make the columns; the origin of earlier dead letters is unknown."""
    op.add_column("dead_letters", sa.Column("origin", sa.String(64), nullable=False, server_default=""))
    op.add_column("dead_letters", sa.Column("replay", sa.BigInteger, nullable=True))
    op.create_index("letters_of_replay", "dead_letters", ["replay", "dataset", "source", "id"])


def downgrade() -> None:
    """Forget them."""
    op.drop_index("letters_of_replay", "dead_letters")
    op.drop_column("dead_letters", "replay")
    op.drop_column("dead_letters", "origin")
