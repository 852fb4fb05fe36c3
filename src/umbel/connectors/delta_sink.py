"""A Delta table as a sink: a commit has changes and the position.

The position is an application transaction of Delta's log: the sink's id, and batch and rows in one number. For a keyed dataset
the table has the current row of each key, merged; for a keyless one each change is a row with a weight, 1 or -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.connectors.delta_tables import address_of
from umbel.connectors.sinks import PlainRow, RowChange, SinkPosition, SinkWriter, WriteOptions
from umbel.errors import InvalidValue, Transient
from umbel.types.json_values import each, reader

if TYPE_CHECKING:
    from umbel.connectors.s3 import S3Connector

WEIGHT, DELETED = "_weight", "_deleted"
_ROWS = 32
"""Bits of a position's number for the rows; the batch is above them."""
_FIRST = 2
"""Added to a batch: the first one is -1, and 0 is no position."""


class DeltaWriter(SinkWriter):
    """Writes to one table.

    Args:
        connector: the table.
        options: of the sink.
    """

    def __init__(self, connector: S3Connector, options: WriteOptions) -> None:
        self._title, self._options = f"{connector.title}, table '{connector.prefix}'", options
        self._address, self._storage = address_of(connector)
        self._position = 0

    def position(self) -> SinkPosition:
        from deltalake import DeltaTable

        schema = self._table(()).schema
        if len({name.lower() for name in schema.names}) < len(schema.names):
            names = ", ".join(f"'{name}'" for name in sorted(schema.names, key=str.lower))
            raise InvalidValue(
                f"{self._title}: columns of Delta tables cannot differ in case only: {names}",
                hint='name one otherwise: renames={"a field": "a column"}',
            )
        with self._described():
            DeltaTable.create(self._address, schema=schema, mode="ignore", storage_options=self._storage)
            table = self._opened()
            present = {field.name for field in table.schema().fields}
            self._position, self.made = table.transaction_version(self._options.id) or 0, str(table.metadata().id)
        if missing := [name for name in schema.names if name not in present]:
            listed = ", ".join(f"'{name}'" for name in missing)
            raise InvalidValue(f"{self._title}: the table has no column {listed}", hint="write to another path")
        if not self._position:
            return SinkPosition()
        return SinkPosition((self._position >> _ROWS) - _FIRST, self._position & ((1 << _ROWS) - 1))

    def write(self, changes: Sequence[RowChange], position: SinkPosition) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        reached = (position.batch + _FIRST << _ROWS) | position.rows
        marked = CommitProperties(app_transactions=[Transaction(self._options.id, reached)])
        with self._described():
            table = self._opened()
            if (table.transaction_version(self._options.id) or 0) != self._position:
                raise Transient(f"{self._title}: another writer has taken over the sink")
            if self._options.schema.is_keyed:
                self._merge(table, changes, marked)
            else:
                write_deltalake(table, self._table(changes), mode="append", commit_properties=marked)
        self._position = reached

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _merge(self, table: Any, changes: Sequence[RowChange], marked: Any) -> None:
        rows = self._table(changes, with_deleted=True)
        names = [name for name in rows.column_names if name != DELETED]
        values = {_quoted(name): f"s.{_quoted(name)}" for name in names}
        keys = [_quoted(self._options.column(name)) for name in self._options.schema.key_names]
        same = " AND ".join(f"t.{name} = s.{name}" for name in keys)
        merged = table.merge(rows, same, source_alias="s", target_alias="t", commit_properties=marked)
        merged = merged.when_matched_delete(f"s.{DELETED}").when_matched_update(values)
        merged.when_not_matched_insert(values, predicate=f"NOT s.{DELETED}").execute()

    def _table(self, changes: Sequence[RowChange], *, with_deleted: bool = False) -> Any:
        """Return changes as an Arrow table, with the columns of the sink."""
        schema, rows = self._options.schema, [each.after or each.before or {} for each in changes]
        columns = [self._column(name, rows) for name in schema.names]
        gone = [each.after is None for each in changes]
        if not schema.is_keyed:
            columns.append(pl.Series(WEIGHT, [-1 if each else 1 for each in gone], dtype=pl.Int32))
        elif with_deleted:
            columns.append(pl.Series(DELETED, gone, dtype=pl.Boolean))
        return pl.DataFrame(columns).to_arrow(compat_level=pl.CompatLevel.oldest())

    def _column(self, name: str, rows: Sequence[PlainRow]) -> pl.Series:
        dtype = self._options.schema.dtypes[name]
        turn = reader(dtype)
        values = [row.get(name) for row in rows]
        made = dtype.convert(values if turn is None else each(turn, values))
        assert not made.errors, made.errors
        return made.values.cast(dtype.polars()).alias(self._options.column(name))

    def _opened(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._address, storage_options=self._storage)

    @contextmanager
    def _described(self) -> Iterator[None]:
        """Turn errors of the storage and of concurrent writers into transient ones."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError) as error:
            reason = str(error).partition("\n")[0][:300]
            raise Transient(
                f"{self._title}: {reason}", hint="see that the bucket exists and can be written to"
            ) from None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
