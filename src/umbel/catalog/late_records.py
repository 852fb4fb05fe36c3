"""Late records: dead letters of which each dataset stores the newest ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from umbel.catalog import tables as t

LATE = "late: "
"""Prefix of the reason of a record that arrived after the watermark had passed it."""
PARTS = 16
"""The oldest are deleted each time that this part of the bytes has been added."""


class LateRecords:
    """The deletion of late records, by a process that adds some."""

    def __init__(self) -> None:
        self._added = dict[str, int]()

    def trim(self, session: Session, added: Iterable[tuple[str, int]], most: int) -> None:
        """Delete the oldest late records of datasets, if many have been added since.

        To find them the sizes of all are added up, which must not happen with each batch.

        Args:
            session: in which they were added.
            added: dataset and bytes of each.
            most: bytes of a dataset's late records that are retained; at times, `PARTS` and a batch lead to more.
        """
        sizes = Counter[str]()
        for dataset, size in added:
            sizes[dataset] += size
        for dataset, size in sizes.items():
            total = self._added.get(dataset, most) + size
            is_due = total > most // PARTS
            if is_due:
                _forget(session, dataset, most)
            self._added[dataset] = 0 if is_due else total


def _forget(session: Session, dataset: str, keep: int) -> None:
    """Delete the oldest of a dataset's late records beyond a number of bytes."""
    mine = t.DeadLetterRow.dataset == dataset, t.DeadLetterRow.reason.startswith(LATE)
    size = func.sum(func.length(t.DeadLetterRow.raw)).over(order_by=t.DeadLetterRow.id.desc())
    sized = select(t.DeadLetterRow.id, size.label("size")).where(*mine).subquery()
    last = session.scalar(select(func.max(sized.c.id)).where(sized.c.size > keep))
    if last is not None:
        session.execute(delete(t.DeadLetterRow).where(*mine, t.DeadLetterRow.id <= last))
