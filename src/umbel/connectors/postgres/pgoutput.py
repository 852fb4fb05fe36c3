"""The messages of logical replication: decoded to the changes of one table.

Format: the chapter "Logical Replication Message Formats" of PostgreSQL's manual, protocol version 1, values as text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from umbel.connectors.postgres.columns import Column
from umbel.connectors.postgres.rows import AT, DELETE, INSERT, OP, START, TRUNCATE, UNSENT, UPDATE

UNCHANGED = b"\x00unchanged"
"""Stands for a large value that did not change and was not sent; no value of Postgres has a zero byte."""
EPOCH_2000 = 946_684_800_000_000
"""The epoch of Postgres in µs since that of Unix."""
Values = Sequence[bytes | None]
Key = tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as the stream describes it.

    Args:
        columns: the names of its columns, in the order of values.
        is_full: whether its replica identity is the whole row.
    """

    columns: tuple[str, ...]
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


class Deletions:
    """The last deletions of rows, by key.

    A row that is inserted again must not begin before its deletion, whatever its timestamp says.

    Args:
        limit: how many are remembered.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self._at: dict[Key, int] = {}
        self._limit = limit

    def add(self, key: Key, at: int) -> None:
        """Remember a deletion."""
        self._at.pop(key, None)
        self._at[key] = at
        if len(self._at) > self._limit:
            del self._at[next(iter(self._at))]

    def undone(self, key: Key) -> int | None:
        """Return the instant after a key's deletion, None for none, and forget it."""
        at = self._at.pop(key, None) if self._at else None
        return None if at is None else at + 1


class Decoder:
    """Decodes messages; the changes of committed transactions wait until they are taken.

    Args:
        keys: the names of the columns of the dataset's keys; none for a keyless one.
        deletions: the last ones before.
    """

    def __init__(self, keys: Sequence[str], deletions: Deletions) -> None:
        self._keys, self._deletions = tuple(keys), deletions
        self._relations: dict[int, Relation] = {}
        self._open: list[tuple[str, Relation, Values]] = []
        self._pending: list[Changes] = []
        self.is_open = False
        """Whether a transaction has begun and not ended."""
        self.lsn = 0
        """The position after the last transaction that was committed."""
        self.rows = 0
        """The number of changes that wait to be taken."""

    def feed(self, message: bytes) -> None:
        """Decode one message."""
        kind = message[0]
        if kind == _INSERT:
            relation = self._relations[_number(message, 1)]
            values, _ = _tuple(message, 6)
            self._open.append((INSERT, relation, values))
        elif kind == _UPDATE:
            self._update(message)
        elif kind == _DELETE:
            relation = self._relations[_number(message, 1)]
            values, _ = _tuple(message, 6)
            self._open.append((DELETE, relation, values))
        elif kind == _BEGIN:
            self._open, self.is_open = [], True
        elif kind == _COMMIT:
            _, end, at = struct.unpack_from(">QQq", message, 2)
            self._commit(end, at + EPOCH_2000)
        elif kind == _RELATION:
            number, relation = _relation(message)
            self._relations[number] = relation
        elif kind == _TRUNCATE:
            relation = self._relations[_number(message, 6)]
            self._open.append((TRUNCATE, relation, (None,) * len(relation.columns)))

    def take(self, columns: Mapping[str, Column]) -> pl.DataFrame:
        """Return the changes that wait as columns of text, and forget them.

        Args:
            columns: the columns to return, where the stream has them.
        """
        frames = [_frame(each, columns) for each in self._pending if each.ops]
        self._pending, self.rows = [], 0
        return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()

    def _update(self, message: bytes) -> None:
        relation = self._relations[_number(message, 1)]
        at, former = 5, None
        if message[at] != _NEW:
            former, at = _tuple(message, at + 1)
        values, _ = _tuple(message, at + 1)
        if former is not None:
            if relation.is_full and UNCHANGED in values:
                values = [old if new == UNCHANGED else new for old, new in zip(former, values, strict=True)]
            if self._keys and self._key(relation, former) != self._key(relation, values):
                self._open.append((DELETE, relation, former))
        self._open.append((UNSENT if UNCHANGED in values else UPDATE, relation, values))

    def _key(self, relation: Relation, values: Values) -> Key:
        return tuple(values[relation.columns.index(name)] if name in relation.columns else None for name in self._keys)

    def _commit(self, end: int, at: int) -> None:
        """Add the changes of the open transaction to those that wait."""
        self.is_open, self.lsn = False, end
        for op, relation, values in self._lasting():
            if not self._pending or self._pending[-1].relation is not relation:
                self._pending.append(Changes(relation))
            pending = self._pending[-1]
            pending.ops.append(op)
            pending.rows.append(values)
            pending.committed.append(at)
            pending.starts.append(self._start(op, relation, values, at))
            self.rows += 1
        self._open = []

    def _lasting(self) -> Iterator[tuple[str, Relation, Values]]:
        """Return the changes of the open transaction that last.

        A row that it deletes and inserts again is updated.
        """
        present, replaced, found = set[Key](), set[Key](), list[tuple[str, Relation, Values]]()
        for op, relation, values in reversed(self._open):
            if self._keys and op != TRUNCATE:
                key = self._key(relation, values)
                if op == DELETE and key in present:
                    replaced.add(key)
                    continue
                present.add(key)
            found.append((op, relation, values))
        for op, relation, values in reversed(found):
            is_update = op == INSERT and replaced and self._key(relation, values) in replaced
            yield UPDATE if is_update else op, relation, values

    def _start(self, op: str, relation: Relation, values: Values, at: int) -> int | None:
        """Return the instant before which a row is not in force.

        An updated row replaces the one before when it is committed, and a row that was deleted begins after that, whatever
        their timestamps say.
        """
        if not self._keys or op == TRUNCATE:
            return None
        key = self._key(relation, values)
        if op == DELETE:
            self._deletions.add(key, at)
            return None
        again = self._deletions.undone(key)
        return max(again or at, at) if op == UPDATE else again


def _frame(changes: Changes, columns: Mapping[str, Column]) -> pl.DataFrame:
    values, names = list(zip(*changes.rows, strict=True)), changes.relation.columns
    made = {name: _texts(values[at]) for at, name in enumerate(names) if name in columns}
    special: dict[str, Sequence[int | None]] = {AT: changes.committed, START: changes.starts}
    frame = pl.DataFrame(made, schema=dict.fromkeys(made, pl.String))
    return frame.with_columns(
        pl.Series(OP, changes.ops), *(pl.Series(name, each, dtype=pl.Int64) for name, each in special.items())
    )


def _texts(values: Sequence[bytes | None]) -> pl.Series:
    known = [None if value == UNCHANGED else value for value in values] if UNCHANGED in values else values
    return pl.Series(known, dtype=pl.Binary).cast(pl.String)


def _tuple(message: bytes, at: int) -> tuple[list[bytes | None], int]:
    """Return the values of a row, and the position after them."""
    count = message[at] << 8 | message[at + 1]
    at += 2
    values: list[bytes | None] = []
    for _ in range(count):
        kind = message[at]
        if kind == _TEXT:
            begin = at + 5
            at = begin + int.from_bytes(message[at + 1 : begin], "big")
            values.append(message[begin:at])
        else:
            values.append(None if kind == _NULL else UNCHANGED)
            at += 1
    return values, at


def _relation(message: bytes) -> tuple[int, Relation]:
    number, at = _number(message, 1), 5
    for _ in range(2):  # schema and name
        at = message.index(0, at) + 1
    identity, count = message[at], int.from_bytes(message[at + 1 : at + 3], "big")
    at += 3
    names = []
    for _ in range(count):
        end = message.index(0, at + 1)
        names.append(message[at + 1 : end].decode())
        at = end + 9
    return number, Relation(tuple(names), identity == ord("f"))


def _number(message: bytes, at: int) -> int:
    return int.from_bytes(message[at : at + 4], "big")


_BEGIN, _COMMIT, _RELATION, _INSERT, _UPDATE, _DELETE, _TRUNCATE = b"BCRIUDT"
_TEXT, _NULL, _NEW = b"tnN"
