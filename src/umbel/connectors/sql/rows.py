"""The staged rows of a table: their splits, and their conversion to raw rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Protocol

import polars as pl

from umbel.connectors.splits import Split
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.server import TableDescription
from umbel.connectors.staged_source import StagedSource
from umbel.connectors.staging import OWN, StagedPart
from umbel.definitions.arguments import ReadOptions
from umbel.formats.raw_batch import RawBatch, as_bytes
from umbel.types.dtype import DType, nulls
from umbel.types.dtypes import Optional
from umbel.types.raw import Raw, rejects
from umbel.types.years import row_of

OP, AT, START = f"{OWN}op", f"{OWN}committed", f"{OWN}start"
"""Columns of staged rows beside those of the table: the kind of change, the instant of its commit and the instant before which
it is not in force, in µs since the epoch."""
INSERT, UPDATE, DELETE, TRUNCATE, REDUCED, UNSENT = "i", "u", "d", "t", "p", "?"
AT_ONCE = 65_536
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEYLESS = "of a row: the dataset has no key fields, so that only inserts can be taken"
_REFUSED = {
    TRUNCATE: "the table was truncated: the dataset has no key fields, so that its rows stay; commit it as a new version to "
    "begin anew",
    REDUCED: "a part of {table} was truncated or dropped, and which rows it had is not in the stream: they stay in the "
    "dataset; commit it as a new version to begin anew",
}


class TitledServer(Protocol):
    """A place of tables."""

    @property
    def title(self) -> str:
        """Its description, for messages."""


@dataclass(frozen=True)
class TableSource(StagedSource):
    """The reading side of a table.

    A thread stages its rows, and splits are the staged parts.

    Args:
        server: the server and the login.
        table: the name of the table, as declared.
        options: of the source.
    """

    server: TitledServer
    table: str
    options: ReadOptions

    refused: ClassVar[Mapping[str, str]] = {}
    """Further kinds of changes that cannot be applied, with reasons; `{table}` is the table."""

    @property
    def title(self) -> str:
        """The description of the source, for messages."""
        return f"{self.server.title}, table '{self.table}'"

    @abstractmethod
    def typed(self, text: pl.Series, column: Column, requested: DType | None) -> pl.Series:
        """Convert a staged column; a value that has no other form stays text.

        Args:
            text: the values.
            column: the column they are from.
            requested: the type they will be validated against, None if unknown.
        """

    def names(self, table: TableDescription, *further: str) -> tuple[str, ...]:
        """Return the names of the requested columns, further ones, and the primary key."""
        keys = (name for name, column in table.columns.items() if column.is_primary)
        return tuple(dict.fromkeys((*(self.options.columns or table.columns), *further, *keys)))

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a part, with the deletions of rows."""
        part = self.stage.part(int(split["part"]))
        if "report" in part.facts:
            yield self.report_of(part)
            return
        frame = self.stage.read(part.number)
        columns = [Column(**each) for each in part.facts["columns"]]
        for start in range(0, frame.height, AT_ONCE):
            yield self._batch(frame.slice(start, AT_ONCE), part, start, columns, requested, exact=exact)

    def _batch(
        self,
        staged: pl.DataFrame,
        part: StagedPart,
        start: int,
        columns: Sequence[Column],
        requested: Mapping[str, DType],
        *,
        exact: bool,
    ) -> RawBatch:
        there = [each for each in columns if each.name in staged.columns]
        chosen = [each for each in there if not exact or each.name in requested]
        values = [self.typed(staged[each.name], each, requested.get(each.name)) for each in chosen]
        unsent = part.facts.get("unsent", ())  # the table has them, and their values are unknown
        values += _absent({*unsent, *(each.name for each in chosen)}, staged.height, requested)
        frame = pl.DataFrame(values) if values else pl.DataFrame(height=staged.height)
        errors, deletions, truncations = self._judged(staged) if OP in staged.columns else ({}, {}, {})
        starts = staged[START].cast(pl.Datetime("us", "UTC")) if START in staged.columns else None
        replaces = self._replaces(staged, columns) if START in staged.columns else None

        def where(row: int) -> str:
            return f"{self.server.title}: {self.table}, row {part.first + start + row}"

        def text(row: int) -> bytes:
            found = row_of(staged, row)
            return as_bytes({name: value for name, value in found.items() if name[:1] != OWN})

        raw = Raw(frame, rejects(errors), deletions, starts, replaces, truncations, is_sparse=True)
        return RawBatch(raw, part.first + start, where, text)

    def _replaces(self, staged: pl.DataFrame, columns: Sequence[Column]) -> pl.Series:
        """Return a mask of the changes that end what their key had before them.

        An insertion is one if no other row of the table has its key.
        """
        primary = {each.name for each in columns if each.is_primary}
        is_unique = bool(primary) and primary <= {*(self.options.keys or ())}
        is_change = (pl.col(OP) != INSERT) | pl.col(START).is_not_null()
        return staged.select((is_change | pl.col(AT).is_not_null() if is_unique else is_change).alias("mask"))["mask"]

    def _judged(self, staged: pl.DataFrame) -> tuple[dict[int, str], dict[int, datetime | None], dict[int, datetime]]:
        """Return the reasons of refused changes, and the instants of deletions and truncations."""
        errors, deletions, truncations = dict[int, str](), dict[int, datetime | None](), dict[int, datetime]()
        special = staged.select(OP, AT).with_row_index("row").filter(pl.col(OP) != INSERT)
        refused = {**_REFUSED, **self.refused}
        for row, kind, at in special.iter_rows():
            if kind == TRUNCATE and self.options.is_keyed:
                truncations[row] = _EPOCH + timedelta(microseconds=at)
            elif kind in refused:
                errors[row] = refused[kind].format(table=self.table)
            elif not self.options.is_keyed:
                errors[row] = f"{'an update' if kind == UPDATE else 'a deletion'} {_KEYLESS}"
            elif kind == DELETE:
                deletions[row] = _EPOCH + timedelta(microseconds=at)
        return errors, deletions, truncations


def _absent(there: AbstractSet[str], height: int, requested: Mapping[str, DType]) -> list[pl.Series]:
    """Return null columns for those that were dropped, where fields are Optional.

    Args:
        there: the columns that it has.
        height: the number of rows.
        requested: the types that columns will be validated against.
    """
    dropped = (name for name, dtype in requested.items() if name not in there and isinstance(dtype, Optional))
    return [nulls(height, pl.Null()).alias(name) for name in dropped]
