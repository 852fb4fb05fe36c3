"""Landmarks: rows of sources from which the positions of later rows are counted.

The number of a row orders the rows of a source. A landmark has the number of one of them and a text, from which the source tells
where this row and those after it are: in which file, or at which offset of a topic.
"""

from __future__ import annotations

import math
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

    def before(self, source: str, numbers: Iterable[int]) -> dict[int, tuple[int, str] | None]:
        """Return the last landmark of a source up to each row, or None.

        They are by the numbers of the rows. The catalog is asked once for the rows that share a landmark.
        """
        found: dict[int, tuple[int, str] | None] = {}
        landmark: tuple[int, str] | None = None
        until = -math.inf  # the number of the next landmark
        with self._catalog.sessions() as session:
            for number in sorted(numbers):
                if number >= until:
                    landmark, until = _around(session, source, number)
                found[number] = landmark
        return found


def _around(session: Session, source: str, number: int) -> tuple[tuple[int, str] | None, float]:
    """Return the last landmark up to a row, and the number of the next one."""
    row = t.Landmark
    of_source = select(row).where(row.source == source)
    last = session.scalars(of_source.where(row.number <= number).order_by(row.number.desc()).limit(1)).first()
    following = session.scalars(of_source.where(row.number > number).order_by(row.number).limit(1)).first()
    return None if last is None else (last.number, last.text), math.inf if following is None else following.number


def _write(session: Session, source: str, landmarks: Sequence[tuple[int, str]]) -> None:
    """Write the landmarks of a source, sorted, whose texts differ from those before them."""
    row, (first, _), (last, _) = t.Landmark, landmarks[0], landmarks[-1]
    of_range = select(row.number, row.text).where(row.source == source, row.number >= first, row.number <= last)
    (before, _), there = _around(session, source, first - 1), session.execute(of_range).all()
    known = {(number, text) for number, text in (*filter(None, [before]), *there)}
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
