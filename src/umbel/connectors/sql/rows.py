"""The staged rows of a table: their splits, and their conversion to raw rows."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import polars as pl

from umbel.connectors.lag import SourceLag
from umbel.connectors.polling import Poller, advance, poller_of, reader_state
from umbel.connectors.splits import Found, Position, Split, SplitSource
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.server import DatabaseServer, TableDescription
from umbel.connectors.staging import Stage, StagedPart, folder_of
from umbel.definitions.arguments import ReadOptions
from umbel.errors import Damaged, UmbelError
from umbel.formats.raw_batch import RawBatch, as_bytes, lost
from umbel.log.reading import RESTORE
from umbel.types.dtype import DType
from umbel.types.raw import Raw, rejects

OP, AT, START, IDENTITY = "_op", "_committed", "_start", "_identity"
"""Columns of staged rows beside those of the table: the kind of change, the instant of its commit and the instant before which
it is not in force, in µs since the epoch, and a digest of the row."""
INSERT, UPDATE, DELETE, TRUNCATE, REDUCED, UNSENT = "i", "u", "d", "t", "p", "?"
AT_ONCE = 65_536
AHEAD_BYTES = 1 << 30
"""Bytes of staged rows that no batch has read yet from which on reading waits."""
PATIENCE = 0.2
"""Seconds that planning a batch waits for a read that is under way."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEYLESS = "of a row: the dataset has no key fields, so that only inserts can be taken"
_REFUSED = {
    TRUNCATE: "the table was truncated: the dataset has no key fields, so that its rows stay; commit it as a new version to "
    "begin anew",
    REDUCED: "a part of {table} was truncated or dropped, and which rows it had is not in the stream: they stay in the "
    "dataset; commit it as a new version to begin anew",
}


@dataclass(frozen=True)
class TableSource(SplitSource):
    """The reading side of a table.

    A thread stages its rows, and splits are the staged parts.

    Args:
        server: the server and the login.
        table: the name of the table, as declared.
        options: of the source.
    """

    server: DatabaseServer
    table: str
    options: ReadOptions

    paces_itself: ClassVar[bool] = True
    refused: ClassVar[Mapping[str, str]] = {}
    """Further kinds of changes that cannot be applied, with reasons; `{table}` is the table."""

    @property
    def folder(self) -> Path:
        """The folder of the staged rows."""
        return folder_of(self.options.directory, self.options.key)

    @cached_property
    def stage(self) -> Stage:
        """The staged rows."""
        return Stage(self.folder)

    @property
    def title(self) -> str:
        """The description of the source, for messages."""
        return f"{self.server.title}, table '{self.table}'"

    @property
    def is_loading(self) -> bool:
        return not self.stage.state().get("loaded", False)

    def tend(self) -> None:
        poller_of(self).renew(PATIENCE)

    def take_over(self) -> None:
        """Forget what is known of the folder, see `Polled`."""
        self.__dict__.pop("stage", None)

    @abstractmethod
    def read_on(self, poller: Poller) -> float:
        """Read what is new, see `Polled`."""

    @abstractmethod
    def typed(self, text: pl.Series, column: Column, requested: DType | None) -> pl.Series:
        """Convert a staged column; a value that has no other form stays text.

        Args:
            text: the values.
            column: the column they are from.
            requested: the type they will be validated against, None if unknown.
        """

    def visible(self) -> Sequence[int]:
        """Return the numbers of the parts that may be read."""
        return self.stage.numbers()

    def names(self, table: TableDescription, *further: str) -> tuple[str, ...]:
        """Return the names of the requested columns, further ones, and the primary key."""
        keys = (name for name, column in table.columns.items() if column.is_primary)
        return tuple(dict.fromkeys((*(self.options.columns or table.columns), *further, *keys)))

    def has_room(self, poller: Poller) -> bool:
        """Wait while much is staged that no batch has read; return whether to read on."""
        while not poller.is_stopping:
            waiting = sum(self.stage.part(each).size for each in self.stage.numbers() if each > poller.planned)
            if waiting < AHEAD_BYTES:
                return True
            time.sleep(0.1)
        return False

    def report(self, error: UmbelError) -> None:
        """Stage an error as a rejected record, so that it is among the dead letters."""
        reason = f"{error.message}; hint: {error.hint}" if error.hint else error.message
        self.stage.append(pl.DataFrame({IDENTITY: [0]}), {"report": reason})

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return the parts up to a byte budget that were staged after the position's."""
        read, found = int(position["part"]) if position else 0, list[Found]()
        numbers = [number for number in self.visible() if number > read]
        advance(self.folder, read)
        for number in numbers:
            if found and budget <= 0:
                break
            part = self.stage.part(number)
            found.append(({"part": number}, part.size))
            budget -= part.size
            read = number
        return found, {"part": read}

    def lag(self, position: Position) -> SourceLag:
        """Return what is staged beyond a position, and what the server has beyond that."""
        read = int(position["part"]) if position else 0
        parts = [self.stage.part(number) for number in self.visible() if number > read]
        oldest = min((self.stage.staged_at(part.number) for part in parts), default=None)
        waited = 0.0 if oldest is None else max(0.0, time.time() - oldest)
        staged = SourceLag(sum(part.rows for part in parts), sum(part.size for part in parts), waited)
        return staged + reader_state(self.folder)[0]

    @property
    def trouble(self) -> str:
        return reader_state(self.folder)[1]

    def check(self, position: Position) -> None:
        """Check that reading can resume at a position.

        Raises:
            Damaged: parts after it are missing.
        """
        if position is None:
            return
        read, numbers = int(position["part"]), self.stage.numbers()
        first = next((number for number in numbers if number > read), None)
        if not numbers or numbers[-1] < read or (first is not None and first != read + 1 and read > 0):
            raise Damaged(
                f"{self.title}: staged rows after part {read} are missing in {self.folder.name}", hint=RESTORE
            )

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a part, with the deletions of rows."""
        part = self.stage.part(int(split["part"]))
        if "report" in part.facts:
            yield RawBatch(lost(part.facts["report"]), part.first, lambda _: self.title, lambda _: b"")
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
        frame = pl.DataFrame(values) if values else pl.DataFrame(height=staged.height)
        errors, deletions, truncations = self._judged(staged) if OP in staged.columns else ({}, {}, {})
        starts = staged[START].cast(pl.Datetime("us", "UTC")) if START in staged.columns else None

        def where(row: int) -> str:
            return f"{self.server.title}: {self.table}, row {part.first + start + row}"

        def text(row: int) -> bytes:
            return as_bytes(staged.row(row, named=True))

        return RawBatch(Raw(frame, rejects(errors), deletions, starts, truncations), part.first + start, where, text)

    def _judged(self, staged: pl.DataFrame) -> tuple[dict[int, str], dict[int, datetime | None], dict[int, datetime]]:
        """Return the changes that cannot be applied with reasons, and deletions and truncations with their instants."""
        errors, deletions, truncations = dict[int, str](), dict[int, datetime | None](), dict[int, datetime]()
        special = staged.with_row_index("_row").filter(pl.col(OP) != INSERT)
        refused = {**_REFUSED, **self.refused}
        for row, kind, at in special.select("_row", OP, AT).iter_rows():
            if kind == TRUNCATE and self.options.is_keyed:
                truncations[row] = _EPOCH + timedelta(microseconds=at)
            elif kind in refused:
                errors[row] = refused[kind].format(table=self.table)
            elif not self.options.is_keyed:
                errors[row] = f"{'an update' if kind == UPDATE else 'a deletion'} {_KEYLESS}"
            elif kind == DELETE:
                deletions[row] = _EPOCH + timedelta(microseconds=at)
        return errors, deletions, truncations
