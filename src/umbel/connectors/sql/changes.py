"""The changes of one table that a server streams: collected by transaction, in order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import polars as pl

from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.rows import AT, DELETE, INSERT, OP, START, TRUNCATE, UNSENT, UPDATE

Values: TypeAlias = Sequence[Hashable]
Key: TypeAlias = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as the stream describes it.

    Args:
        columns: the names of its columns, in the order of values.
        series: converts the values of a column, by its place, to how it is staged.
        is_full: whether the former values of a changed row are complete.
    """

    columns: tuple[str, ...]
    series: Callable[[int, Values], pl.Series]
    is_full: bool


@dataclass(slots=True)
class Changes:
    """Changes under one description of the table, in order.

    Args:
        relation: the description.
        ops: the kind of each.
        rows: the values of each.
        committed: the commit of each.
        starts: the instant before which each is not in force, None for none.
    """

    relation: Relation
    ops: list[str] = field(default_factory=list)
    rows: list[Values] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    starts: list[int | None] = field(default_factory=list)

    def frame(self, columns: Mapping[str, Column]) -> pl.DataFrame:
        """Return the changes as columns.

        Args:
            columns: the columns to return, where the stream has them.
        """
        values = list(zip(*self.rows, strict=True))
        names = self.relation.columns
        made = [self.relation.series(at, values[at]).alias(name) for at, name in enumerate(names) if name in columns]
        special: dict[str, Sequence[int | None]] = {AT: self.committed, START: self.starts}
        return pl.DataFrame(
            [*made, pl.Series(OP, self.ops), *(pl.Series(name, each, dtype=pl.Int64) for name, each in special.items())]
        )


class Deletions:
    """The last deletions of rows, by key, and the last truncation.

    A row that is inserted again must not begin before its deletion, whatever its timestamp says; nor may what follows in the same
    instant, where the server's clock is too coarse to tell transactions apart.

    Args:
        limit: how many are remembered.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self._at: dict[Key, int] = {}
        self._limit = limit
        self.truncated_at: int | None = None
        """The instant of the last truncation, None for none; rows after it begin later."""

    @property
    def is_used(self) -> bool:
        """True if any is remembered."""
        return bool(self._at) or self.truncated_at is not None

    def add(self, key: Key, at: int) -> int:
        """Remember a deletion; return its instant.

        Args:
            key: of the row.
            at: the instant of the commit; the deletion is later if the row began later.
        """
        at = max(at, self._at.pop(key, at - 1) + 1, self._emptied_until or at)
        self._at[key] = at
        if len(self._at) > self._limit:
            del self._at[next(iter(self._at))]
        return at

    def truncate(self, at: int) -> int:
        """Remember a truncation; return its instant.

        Args:
            at: the instant of the commit; the truncation is later if rows before it began later.
        """
        at = max(at, self._emptied_until or at)
        self._at = {key: deleted for key, deleted in self._at.items() if deleted > at}
        self.truncated_at = at
        return at

    @property
    def _emptied_until(self) -> int | None:
        return None if self.truncated_at is None else self.truncated_at + 1

    def undone(self, key: Key, at: int) -> int | None:
        """Return the instant after a key's deletion or the last truncation, None for neither.

        A deletion is forgotten when commits are past it.

        Args:
            key: of the row.
            at: the instant of the commit.
        """
        deleted = self._at.get(key) if self._at else None
        if deleted is None:
            return self._emptied_until
        if deleted < at:
            del self._at[key]
        return max(deleted + 1, self._emptied_until or 0)


class Transactions:
    """The changes of the open transaction, and of committed ones until they are taken.

    Args:
        keys: the names of the columns of the dataset's keys; none for a keyless one.
        deletions: the last ones before.
    """

    def __init__(self, keys: Sequence[str], deletions: Deletions) -> None:
        self._keys, self._deletions = tuple(keys), deletions
        self._places: dict[int, tuple[Relation, list[int | None]]] = {}
        self._open: list[tuple[str, Relation, Values]] = []
        self._pending: list[Changes] = []
        self.is_open = False
        """Whether a transaction has begun and not ended."""
        self.rows = 0
        """The number of changes that wait to be taken."""

    def begin(self) -> None:
        """Begin a transaction."""
        self._open, self.is_open = [], True

    def add(self, op: str, relation: Relation, values: Values) -> None:
        """Add a change to the open transaction."""
        self._open.append((op, relation, values))

    def update(self, op: str, relation: Relation, former: Values, values: Values) -> None:
        """Add an update of a row; its former key ends if it changed."""
        if self._keys and self._key(relation, former) != self._key(relation, values):
            self._open.append((DELETE, relation, former))
        self._open.append((op, relation, values))

    def undo(self) -> None:
        """End the open transaction without its changes."""
        self._open, self.is_open = [], False

    def refuse(self, op: str) -> None:
        """Make all changes of the open transaction such as cannot be applied."""
        self._open = [(op, relation, values) for _, relation, values in self._open]

    def commit(self, at: int) -> None:
        """Add the changes of the open transaction to those that wait.

        Args:
            at: the instant of its commit.
        """
        self.is_open = False
        for op, relation, values in self._lasting():
            if not self._pending or self._pending[-1].relation is not relation:
                self._pending.append(Changes(relation))
            pending = self._pending[-1]
            took_effect, start = self._instants(op, relation, values, at)
            pending.ops.append(op)
            pending.rows.append(values)
            pending.committed.append(took_effect)
            pending.starts.append(start)
            self.rows += 1
        self._open = []

    def take(self, columns: Mapping[str, Column]) -> pl.DataFrame:
        """Return the changes that wait as columns, and forget them.

        Args:
            columns: the columns to return, where the stream has them.
        """
        frames = [each.frame(columns) for each in self._pending if each.ops]
        self._pending, self.rows = [], 0
        return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()

    def _key(self, relation: Relation, values: Values) -> Key:
        found = self._places.get(id(relation))
        if found is None:
            names = relation.columns
            found = self._places[id(relation)] = (
                relation,
                [names.index(name) if name in names else None for name in self._keys],
            )
        return tuple([None if at is None else values[at] for at in found[1]])

    def _lasting(self) -> Iterator[tuple[str, Relation, Values]]:
        """Return the changes of the open transaction that last.

        A row that it deletes and inserts again is updated. What it changed before a truncation is not there any more.
        """
        present, replaced, found = set[Key](), set[Key](), list[tuple[str, Relation, Values]]()
        for op, relation, values in reversed(self._open):
            if self._keys and op == TRUNCATE:
                found.append((op, relation, values))
                break
            if self._keys and op in _OF_ROWS:
                key = self._key(relation, values)
                if op == DELETE and key in present:
                    replaced.add(key)
                    continue
                present.add(key)
            found.append((op, relation, values))
        for op, relation, values in reversed(found):
            is_update = op == INSERT and replaced and self._key(relation, values) in replaced
            yield UPDATE if is_update else op, relation, values

    def _instants(self, op: str, relation: Relation, values: Values, at: int) -> tuple[int, int | None]:
        """Return when a change took effect, and when its row begins at the earliest.

        An updated row replaces the one before when it is committed, and a row that was deleted begins after that, whatever
        their timestamps say.
        """
        if self._keys and op == TRUNCATE:
            return self._deletions.truncate(at), None
        if not self._keys or op not in _OF_ROWS:
            return at, None
        key = self._key(relation, values)
        if op == DELETE:
            return self._deletions.add(key, at), None
        again = self._deletions.undone(key, at)
        return at, max(again or at, at) if op == UPDATE else again


_OF_ROWS = frozenset({INSERT, UPDATE, DELETE, UNSENT})
