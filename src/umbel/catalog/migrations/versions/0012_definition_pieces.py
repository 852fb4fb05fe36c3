"""Definitions in pieces, each stored once."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

from umbel.catalog.checksums import opened, sealed
from umbel.catalog.definition_pieces import digests, divided, joined
from umbel.errors import Damaged

revision = "0012"
down_revision = "0011"

COMMITS = sa.table("commits", sa.column("revision", sa.BigInteger), sa.column("definitions", sa.LargeBinary))
PIECES = sa.table("definition_pieces", sa.column("digest", sa.String(64)), sa.column("data", sa.LargeBinary))


def upgrade() -> None:
    """Divide the definitions of all commits; damaged ones stay for the check."""
    op.create_table(
        "definition_pieces",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    known = set[str]()
    for number, stored in _commits():
        try:
            listed, pieces = divided(opened(stored, f"the definitions of revision {number}"))
        except Damaged:
            continue
        new = [{"digest": digest, "data": data} for digest, data in pieces.items() if digest not in known]
        if new:
            op.get_bind().execute(sa.insert(PIECES), new)
            known.update(pieces)
        if pieces:
            _write(number, listed)


def downgrade() -> None:
    """Store the definitions with each commit again."""
    for number, stored in _commits():
        what = f"the definitions of revision {number}"
        order = digests(stored, what)
        if order is not None:
            rows = op.get_bind().execute(sa.select(PIECES).where(PIECES.c.digest.in_(order)))
            pieces = {each.digest: each.data for each in rows}
            _write(number, sealed(joined(order, pieces, what)))
    op.drop_table("definition_pieces")


def _commits() -> Iterator[tuple[int, bytes]]:
    """Yield what each commit stores, one at a time."""
    for number in op.get_bind().scalars(sa.select(COMMITS.c.revision).order_by(COMMITS.c.revision)).all():
        found = sa.select(COMMITS.c.definitions).where(COMMITS.c.revision == number)
        yield number, op.get_bind().scalars(found).one()


def _write(number: int, definitions: bytes) -> None:
    op.get_bind().execute(sa.update(COMMITS).where(COMMITS.c.revision == number).values(definitions=definitions))
