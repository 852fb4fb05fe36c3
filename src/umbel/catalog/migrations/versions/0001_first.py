"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create them."""
    op.create_table("settings", sa.Column("name", sa.String(64), primary_key=True), sa.Column("value", sa.JSON))
    op.create_table(
        "commits",
        sa.Column("revision", SERIAL, primary_key=True, autoincrement=True),
        sa.Column("branch", sa.String(256), nullable=False, index=True),
        sa.Column("message", sa.Text, nullable=False),
        _now(),
        sa.Column("definitions", sa.LargeBinary, nullable=False),
    )
    _create_jobs()
    _create_dead_letters()
    op.create_table(
        "backfills", sa.Column("owner", sa.String(64), primary_key=True), sa.Column("done", sa.Boolean, nullable=False)
    )
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(256), primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
        _now(),
        sa.Column("process", sa.String(32), nullable=False),
        sa.Column("level", sa.String(16), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )


def _create_jobs() -> None:
    op.create_table("jobs", sa.Column("name", sa.String(64), primary_key=True), _number("epoch"))
    op.create_table(
        "batches",
        sa.Column("job", sa.String(64), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        _number("revision"),
        _now(),
        sa.Column("progress", sa.JSON, nullable=False),
    )
    op.create_table(
        "counters",
        sa.Column("dataset", sa.String(256), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("batch", sa.BigInteger, primary_key=True),
        _number("value"),
    )


def _create_dead_letters() -> None:
    op.create_table(
        "dead_letters",
        sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
        sa.Column("dataset", sa.String(256), nullable=False),
        sa.Column("source", sa.Integer, nullable=False),
        sa.Column("position", sa.String(1024), nullable=False),
        sa.Column("field", sa.String(256), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("raw", sa.LargeBinary, nullable=False),
        _number("size"),
        _now(),
    )
    columns = ["dataset", "source", "position", "field"]
    op.create_index("one_per_position", "dead_letters", columns, unique=True)
    op.create_index("newest_of_dataset", "dead_letters", ["dataset", "id"])


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _now() -> sa.Column[object]:
    return sa.Column("at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False)


def downgrade() -> None:
    """Drop them."""
    for name in (
        "settings",
        "commits",
        "jobs",
        "batches",
        "counters",
        "dead_letters",
        "backfills",
        "secrets",
        "events",
    ):
        op.drop_table(name)
