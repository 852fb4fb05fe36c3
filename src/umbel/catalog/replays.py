"""Replays: dead letters that are to be processed again, marked in the catalog.

A dead letter belongs to one replay at the most, so that asking twice processes nothing twice. If it is rejected again, that is
a new dead letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, SQLColumnExpression, func, or_, select, update

from umbel.catalog import tables as t
from umbel.catalog.catalog import Catalog
from umbel.catalog.late_records import LATE

TO_REPLAY = "to replay"
"""The name of the count of dead letters that a replay processes."""
REPLAYS = "replays"
"""The setting with the last replay of each source, by dataset and ordinal."""


@dataclass(frozen=True, kw_only=True)
class LetterFilter:
    """Dead letters of a dataset.

    Args:
        dataset: its name in the graph.
        reason: a part of their reasons, None for any.
        source: the ordinal of their source, None for any.
        since: stored at or after it.
        until: stored before it.
    """

    dataset: str
    reason: str | None = None
    source: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def condition(self) -> ColumnElement[bool]:
        """The condition on the rows of dead letters."""
        row = t.DeadLetterRow
        found = row.dataset == self.dataset
        if self.reason is not None:
            found &= row.reason.contains(self.reason, autoescape=True)
        if self.source is not None:
            found &= row.source == self.source
        if self.since is not None:
            found &= row.at >= self.since
        if self.until is not None:
            found &= row.at < self.until
        return found


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A dead letter to be processed again."""

    id: int
    position: str
    raw: bytes


class Replays:
    """The replays of a deployment.

    Args:
        catalog: its catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._sessions = catalog, catalog.sessions

    def examine(self, letters: LetterFilter, origins: Mapping[int, str]) -> Counter[str]:
        """Count dead letters by what a replay does with them.

        Args:
            letters: the dead letters.
            origins: of the sources that can replay, by their ordinal.
        """
        row, found = t.DeadLetterRow, Counter[str]()
        columns: tuple[SQLColumnExpression[Any], ...] = (row.source, row.origin, row.replay, *_left_out().values())
        chosen = select(*columns, func.count(row.position.distinct())).where(letters.condition).group_by(*columns)
        with self._sessions() as session:
            for source, origin, replay, *flags, count in session.execute(chosen):
                found[_outcome(origins.get(source), origin, replay, flags)] += count
        return found

    def request(self, chosen: Sequence[tuple[LetterFilter, Mapping[int, str]]]) -> tuple[int, int]:
        """Mark dead letters for a replay; return its number, and how many there are.

        Args:
            chosen: the dead letters of each dataset, with the origins of the sources that can replay, by their ordinal.
        """
        row, count = t.DeadLetterRow, 0
        self._catalog.setting(REPLAYS, {})
        with self._sessions.begin() as session:
            # An update, not a query: requests at the same time wait here, or they would have the same number.
            session.execute(update(t.SettingRow).where(t.SettingRow.name == REPLAYS).values(name=REPLAYS))
            known = dict(session.get_one(t.SettingRow, REPLAYS).value)
            number = max(known.values(), default=0) + 1
            for letters, source, origin in ((of, *each) for of, origins in chosen for each in origins.items()):
                mine = letters.condition & (row.source == source) & (row.origin == origin) & row.replay.is_(None)
                mine &= ~or_(*_left_out().values())
                session.execute(update(row).where(mine).values(replay=number))
                marked = (row.replay == number) & (row.dataset == letters.dataset) & (row.source == source)
                found = session.scalar(select(func.count(row.position.distinct())).where(marked)) or 0
                count += found
                if found:
                    known[f"{letters.dataset}/{source}"] = number
            if count:
                session.merge(t.SettingRow(name=REPLAYS, value=known))
        return number, count

    def last(self) -> dict[str, int]:
        """Return the last replay of each source that has one."""
        return dict(self._catalog.noted(REPLAYS) or {})

    def ids(self, number: int, dataset: str, source: int, origin: str) -> list[int]:
        """Return the ids of the dead letters of a replay, one for each record.

        Those of an earlier definition are left out: their sources are read again.

        Args:
            number: of the replay.
            dataset: its name in the graph.
            source: the ordinal of the source.
            origin: of the source, as it is defined now.
        """
        row = t.DeadLetterRow
        mine = (row.replay == number) & (row.dataset == dataset) & (row.source == source) & (row.origin == origin)
        one = select(func.min(row.id)).where(mine).group_by(row.position)
        with self._sessions() as session:
            return sorted(session.scalars(one))

    def read(self, ids: Sequence[int]) -> list[StoredLetter]:
        """Return dead letters in the order of their ids."""
        row = t.DeadLetterRow
        with self._sessions() as session:
            found = session.execute(select(row.id, row.position, row.raw).where(row.id.in_(ids)).order_by(row.id))
            return [StoredLetter(*each) for each in found]


def _left_out() -> dict[str, ColumnElement[bool]]:
    """Return which dead letters no replay takes, by why."""
    row = t.DeadLetterRow
    return {
        "too late": row.reason.startswith(LATE),
        "too large to be stored whole": row.size > func.length(row.raw),
        "without a record, as a damaged file": row.size == 0,
    }


def _outcome(current: str | None, origin: str, replay: int | None, flags: Sequence[bool]) -> str:
    if replay is not None:
        return "replayed before"
    if current is None:
        return "of a source, a pipeline or a sink whose records cannot be replayed"
    for reason, is_left_out in zip(_left_out(), flags, strict=True):
        if is_left_out:
            return reason
    return TO_REPLAY if origin == current else "of an earlier definition, whose sources were read again since"
