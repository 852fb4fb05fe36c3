"""Landmarks: rows of sources from which the positions of later rows are counted.

The number of a row orders the rows of a source. A landmark has the number of one of them and a text, from which the source tells
where this row and those after it are: in which file, or at which offset of a topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from umbel.catalog import tables as t
from umbel.catalog.catalog import Catalog

AT_ONCE = 500
"""Landmarks in one statement."""
MOST_NOTED = 10_000
"""Landmarks that are remembered as recorded, so that most batches ask the catalog nothing."""


class Landmarks:
    """The landmarks of the sources of a deployment.

    Args:
        catalog: the catalog they are recorded in.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._noted = set[tuple[str, str]]()

    def note(self, found: Mapping[str, Iterable[tuple[int, str]]], job: str, epoch: int) -> None:
        """Record landmarks by the keys of their sources; repeating changes nothing.

        One with the text of the landmark before it is left out.

        Args:
            found: their numbers and texts.
            job: the job that has read their rows.
            epoch: the epoch returned by `Catalog.take_over` to the caller.

        Raises:
            Fenced: another worker has taken over the job.
        """
        fresh = {
            source: sorted(each for each in landmarks if (source, each[1]) not in self._noted)
            for source, landmarks in found.items()
        }
        if not any(fresh.values()):
            return
        with self._catalog.sessions.begin() as session:
            self._catalog.check_owner(session, job, epoch)
            for source, landmarks in fresh.items():
                if landmarks:
                    _write(session, source, landmarks)
        noted = {(source, text) for source, landmarks in fresh.items() for _, text in landmarks}
        self._noted = noted if len(self._noted) > MOST_NOTED else self._noted | noted

    def before(self, source: str, number: int) -> tuple[int, str] | None:
        """Return the last landmark of a source up to a row, or None."""
        row = t.Landmark
        newest = select(row).where(row.source == source, row.number <= number).order_by(row.number.desc()).limit(1)
        with self._catalog.sessions() as session:
            found = session.scalars(newest).first()
            return None if found is None else (found.number, found.text)


def _write(session: Session, source: str, landmarks: Sequence[tuple[int, str]]) -> None:
    """Write the landmarks of a source, sorted, whose texts differ from those before them."""
    row, (first, _), (last, _) = t.Landmark, landmarks[0], landmarks[-1]
    of_source = select(row.number, row.text).where(row.source == source)
    before = session.execute(of_source.where(row.number < first).order_by(row.number.desc()).limit(1)).all()
    there = session.execute(of_source.where(row.number >= first, row.number <= last)).all()
    known = {(number, text) for number, text in (*before, *there)}
    rows, text_before = list[dict[str, Any]](), ""
    for number, text in sorted({*known, *landmarks}):
        if text != text_before and (number, text) not in known:
            rows.append({"source": source, "number": number, "text": text})
        text_before = text
    for start in range(0, len(rows), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        replaced = row.number.in_([each["number"] for each in part])
        session.execute(delete(row).where(row.source == source, replaced))
        session.execute(insert(row), part)
