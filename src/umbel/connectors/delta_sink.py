"""A Delta table as a sink: a commit has changes and the position.

The position is an application transaction of Delta's log: the sink's id, and batch and rows in one number. For a keyed dataset
the table has the current row of each key, merged; for a keyless one each change is a row with a weight, 1 or -1.

The constraints of a table apply to a commit as a whole. Which rows violate them is found on a trial table in a local folder, with
the same columns and constraints, so that the table itself gets the other rows in one commit.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl
import pyarrow as pa

from umbel.connectors.column_fit import fitted
from umbel.connectors.delta_tables import address_of
from umbel.connectors.sinks import (
    Isolation,
    PlainRow,
    RowChange,
    RowsRefused,
    SinkPosition,
    SinkWriter,
    WriteOptions,
    divided,
    write_after_trial,
)
from umbel.errors import InvalidValue, Transient
from umbel.types.json_values import each, reader

if TYPE_CHECKING:
    from umbel.connectors.s3 import S3Connector

WEIGHT, DELETED = "_weight", "_deleted"
_ROWS = 32
"""Bits of a position's number for the rows; the batch is above them."""
_FIRST = 2
"""Added to a batch: the first one is -1, and 0 is no position."""
_QUICK = {"connect_timeout": "3s", "timeout": "10s", "max_retries": "1", "retry_timeout": "10s"}
"""The options of a storage that somebody waits for."""
_INVALID = re.compile(r"failed validation check|Invalid data found")
"""What `deltalake` says of rows that violate a constraint; it has no exception of its own for them."""
_CAST = "Cast error"
"""What it says, in an `Exception`, of values that columns do not hold."""
_REMEDIES = {
    "Unsupported table features": "ALTER TABLE … DROP FEATURE, or write to another path",
    "append-only": "ALTER TABLE … UNSET TBLPROPERTIES (delta.appendOnly), or write to another path",
    "_last_checkpoint": "put the checkpoint back; where the log has all versions before it, delete _delta_log/_last_checkpoint",
    "fetch metadata for file": "put the file back, or take it out of the table: FSCK REPAIR TABLE …",
}
"""What helps against changes that somebody made to the table, by what it says of them."""
_CONSTRAINT, _GENERATED = "delta.constraints.", "delta.generationExpression"


class DeltaWriter(SinkWriter):
    """Writes to one table.

    Args:
        connector: the table.
        options: of the sink.
    """

    isolates: ClassVar[bool] = True

    def __init__(self, connector: S3Connector, options: WriteOptions) -> None:
        self._title, self._options = connector.target, options
        self._address, self._storage = address_of(connector)
        self._position, self._rules = 0, ""

    def examine(self) -> None:
        """Check at commit that an existing table has the columns of the dataset.

        Raises:
            InvalidValue: it does not; the message has a remedy.
            Transient: the storage does not answer.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        empty, quick = self._empty(), self._storage and self._storage | _QUICK
        with self._described(), suppress(TableNotFoundError):  # `is_deltatable` holds Python's lock while it waits
            self._check(DeltaTable(self._address, storage_options=quick), empty)

    def position(self) -> SinkPosition:
        from deltalake import DeltaTable

        empty = self._empty()
        with self._described():
            DeltaTable.create(self._address, schema=empty.schema, mode="ignore", storage_options=self._storage)
            table = self._opened()
            self._position, self.made = table.transaction_version(self._options.id) or 0, str(table.metadata().id)
        self._check(table, empty)
        if not self._position:
            return SinkPosition()
        return SinkPosition((self._position >> _ROWS) - _FIRST, self._position & ((1 << _ROWS) - 1))

    def write(self, changes: Sequence[RowChange], position: SinkPosition) -> None:
        from deltalake import CommitProperties, Transaction

        reached = (position.batch + _FIRST << _ROWS) | position.rows
        marked = CommitProperties(app_transactions=[Transaction(self._options.id, reached)])
        with self._described():
            table = self._opened()
            self._rules = _constraints(table)
            if (table.transaction_version(self._options.id) or 0) != self._position:
                raise Transient(f"{self._title}: another writer has taken over the sink")
            self._put(table, changes, marked)
        self._position = reached

    def write_accepted(self, changes: Sequence[RowChange], position: SinkPosition, isolation: Isolation) -> None:
        from deltalake import DeltaTable

        with self._described(), tempfile.TemporaryDirectory(prefix="umbel-delta-") as folder:
            self._make_trial(folder, changes)

            def attempt(_: int, part: Sequence[RowChange]) -> None:
                with self._described():
                    self._put(DeltaTable(folder), part)

            found = divided(changes, attempt)
        write_after_trial(self, found, position, isolation)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _empty(self) -> pa.Table:
        """Return a table without rows, with the columns that the sink needs."""
        empty = self._table(())
        if len({name.lower() for name in empty.column_names}) < len(empty.column_names):
            names = ", ".join(f"'{name}'" for name in sorted(empty.column_names, key=str.lower))
            raise InvalidValue(
                f"{self._title}: columns of Delta tables cannot differ in case only: {names}",
                hint='name one otherwise: renames={"a field": "a column"}',
            )
        return empty

    def _check(self, table: Any, empty: pa.Table) -> None:
        present = {field.name for field in table.schema().fields}
        if missing := [name for name in empty.column_names if name not in present]:
            listed = ", ".join(f"'{name}'" for name in missing)
            raise InvalidValue(f"{self._title}: the table has no column {listed}", hint="write to another path")
        self._fitted(empty, table)

    def _put(self, table: Any, changes: Sequence[RowChange], marked: Any = None) -> None:
        from deltalake import write_deltalake

        if self._options.schema.is_keyed:
            self._merge(table, changes, marked)
        else:
            rows = _completed(self._fitted(self._table(changes), table), table)
            write_deltalake(table, rows, mode="append", commit_properties=marked)

    def _merge(self, table: Any, changes: Sequence[RowChange], marked: Any) -> None:
        rows = self._fitted(self._table(changes, with_deleted=True), table)
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

    def _fitted(self, rows: pa.Table, table: Any) -> pa.Table:
        """Return rows in the types of the table's columns.

        Raises:
            InvalidValue: a type has no values of the dataset's.
            RowsRefused: a value is none of its column's type.
        """
        types = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
        for n, name in enumerate(rows.column_names):
            if name in types:
                subject = f"{self._title}: column '{name}'"
                rows = rows.set_column(n, name, fitted(rows.column(n), types[name], subject))
        return rows

    def _make_trial(self, folder: str, changes: Sequence[RowChange]) -> None:
        """Make a table with the columns and constraints of the sink's.

        It has those of its rows that a merge may update, where they have further columns.
        """
        from deltalake import DeltaTable, write_deltalake

        table = self._opened()
        log = Path(folder, "_delta_log")
        log.mkdir()
        log.joinpath(f"{0:020}.json").write_text("\n".join(map(json.dumps, _definition(table))), encoding="utf-8")
        own = pl.DataFrame(pl.from_arrow(self._table(changes)))
        if self._options.schema.is_keyed and {field.name for field in table.schema().fields} - set(own.columns):
            keys = [self._options.column(name) for name in self._options.schema.key_names]
            chosen = own.select(keys)
            same = [pl.col(name).cast(dtype, strict=False) for name, dtype in chosen.schema.items()]
            for batch in table.to_pyarrow_dataset().to_batches():
                found = pl.DataFrame(pl.from_arrow(batch)).join(chosen, left_on=same, right_on=keys, how="semi")
                if found.height:
                    write_deltalake(DeltaTable(folder), found.to_arrow(), mode="append")

    def _opened(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._address, storage_options=self._storage)

    @contextmanager
    def _described(self) -> Iterator[None]:
        """Turn errors of storage and concurrent writers into transient ones, of rows into refusals."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError) as error:
            reason = str(error).partition("\n")[0][:300]
            if _INVALID.search(reason):
                raise RowsRefused(
                    f"{self._title}: a row violates a constraint of the table: {self._rules}",
                    hint="correct the row where it comes from, or drop the constraint",
                ) from None
            remedies = (remedy for sign, remedy in _REMEDIES.items() if sign in reason)
            raise Transient(
                f"{self._title}: {reason}", hint=next(remedies, "see that the bucket exists and can be written to")
            ) from None
        except Exception as error:
            if type(error) is not Exception or not str(error).startswith(_CAST):
                raise
            raise RowsRefused(f"{self._title}: {str(error)[:300]}", hint="let the column have a larger type") from None


def _completed(rows: pa.Table, table: Any) -> pa.Table:
    """Return rows with null columns for further ones of the table.

    It computes generated ones itself.
    """
    computed = {field.name for field in table.schema().fields if _GENERATED in field.metadata}
    for field in pa.schema(table.schema().to_arrow()):
        if field.name not in {*rows.column_names, *computed}:
            rows = rows.append_column(field.name, pa.nulls(rows.num_rows, field.type))
    return rows


def _constraints(table: Any) -> str:
    """Return the constraints of a table, as text."""
    named = {name: rule for name, rule in table.metadata().configuration.items() if name.startswith(_CONSTRAINT)}
    rules = [f"{name.removeprefix(_CONSTRAINT)} ({rule})" for name, rule in sorted(named.items())]
    rules += [f"{field.name} NOT NULL" for field in table.schema().fields if not field.nullable]
    return ", ".join(rules)[:500] or "unknown"


def _definition(table: Any) -> list[dict[str, Any]]:
    """Return the actions of Delta's log (Delta protocol) that define an empty table without partitions."""
    protocol, metadata = table.protocol(), table.metadata()
    versions = {"minReaderVersion": protocol.min_reader_version, "minWriterVersion": protocol.min_writer_version}
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    return [
        {"protocol": versions | {name: each for name, each in features.items() if each is not None}},
        {
            "metaData": {
                "id": metadata.id,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": table.schema().to_json(),
                "partitionColumns": [],
                "configuration": metadata.configuration,
                "createdTime": 0,
            }
        },
    ]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
