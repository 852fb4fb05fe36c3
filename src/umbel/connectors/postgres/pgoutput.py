"""The messages of logical replication: decoded to the changes of one table.

Format: the chapter "Logical Replication Message Formats" of PostgreSQL's manual, protocol version 1, values as text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import polars as pl

from umbel.connectors.postgres.columns import streamed
from umbel.connectors.sql.changes import Deletions, Relation, Transactions, Values
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.rows import DELETE, INSERT, REDUCED, TRUNCATE, UNSENT, UPDATE

UNCHANGED = b"\x00unchanged"
"""Stands for a large value that did not change and was not sent; no value of Postgres has a zero byte."""
EPOCH_2000 = 946_684_800_000_000
"""The epoch of Postgres in µs since that of Unix."""


class Decoder(Transactions):
    """Decodes messages.

    Args:
        keys: the names of the columns of the dataset's keys; none for a keyless one.
        deletions: the last ones before.
        table: the number of the table.
        is_part: whether the table with another number is a partition of it or inherits from it; a publication may send any.
    """

    def __init__(
        self, keys: Sequence[str], deletions: Deletions, table: int, is_part: Callable[[int], bool] = lambda _: False
    ) -> None:
        super().__init__(keys, deletions)
        self._table, self._is_part = table, is_part
        self._relations: dict[int, Relation] = {}
        self._types: dict[str, tuple[int, int]] = {}
        self.lsn = 0
        """The position after the last transaction that was committed."""
        self.committed_at = 0
        """The instant of its commit, in µs since the epoch; 0 for none."""

    def feed(self, message: bytes) -> None:
        """Decode one message."""
        kind = message[0]
        if kind in _OF_ROWS:
            relation = self._relations.get(_number(message, 1))
            if relation is not None:
                self._changed(kind, relation, message)
        elif kind == _BEGIN:
            self.begin()
        elif kind == _COMMIT:
            _, self.lsn, at = struct.unpack_from(">QQq", message, 2)
            self.committed_at = at + EPOCH_2000
            self.commit(self.committed_at)
        elif kind == _RELATION:
            self._described(message)
        elif kind == _TRUNCATE:
            numbers = struct.unpack_from(f">{_number(message, 1)}I", message, 6)
            relation = next((self._relations[each] for each in numbers if each in self._relations), None)
            if relation is not None:
                self.add(TRUNCATE if self._table in numbers else REDUCED, relation, (None,) * len(relation.columns))

    def columns(self) -> dict[str, Column]:
        """Return the columns that the stream has described."""
        return {name: streamed(name, *each) for name, each in self._types.items()}

    def _described(self, message: bytes) -> None:
        number, relation, types = _relation(message)
        if number == self._table or self._is_part(number):
            self._relations[number] = relation
            self._types.update(types)
        else:
            self._relations.pop(number, None)

    def _changed(self, kind: int, relation: Relation, message: bytes) -> None:
        if kind == _UPDATE:
            self._updated(relation, message)
        else:
            values, _ = _tuple(message, 6)
            self.add(INSERT if kind == _INSERT else DELETE, relation, values)

    def _updated(self, relation: Relation, message: bytes) -> None:
        at, former = 5, None
        if message[at] != _NEW:
            former, at = _tuple(message, at + 1)
        values, _ = _tuple(message, at + 1)
        if former is not None and relation.is_full and UNCHANGED in values:
            values = [old if new == UNCHANGED else new for old, new in zip(former, values, strict=True)]
        op = UNSENT if UNCHANGED in values else UPDATE
        if former is None:
            self.add(op, relation, values)
        else:
            self.update(op, relation, former, values)


def _texts(_: int, values: Values) -> pl.Series:
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


def _relation(message: bytes) -> tuple[int, Relation, dict[str, tuple[int, int]]]:
    """Return the number of a table, the table, and the types of its columns."""
    number, at = _number(message, 1), 5
    for _ in range(2):  # schema and name
        at = message.index(0, at) + 1
    identity, count = message[at], int.from_bytes(message[at + 1 : at + 3], "big")
    at += 3
    types = dict[str, tuple[int, int]]()
    for _ in range(count):
        end = message.index(0, at + 1)
        types[message[at + 1 : end].decode()] = struct.unpack_from(">Ii", message, end + 1)
        at = end + 9
    return number, Relation(tuple(types), _texts, identity == ord("f")), types


def _number(message: bytes, at: int) -> int:
    return int.from_bytes(message[at : at + 4], "big")


_BEGIN, _COMMIT, _RELATION, _INSERT, _UPDATE, _DELETE, _TRUNCATE = b"BCRIUDT"
_OF_ROWS = frozenset({_INSERT, _UPDATE, _DELETE})
_TEXT, _NULL, _NEW = b"tnN"
