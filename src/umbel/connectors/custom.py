"""Connectors of other packages: sources read by pages, sinks written by batches.

A package implements `PageReader` or `BatchWriter`; umbel does the rest. Pages are staged, durably, with the offset behind
them: every row is taken once although an API gives other pages when it is asked again.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias
from uuid import UUID

import orjson
import polars as pl

from umbel.connectors.lag import SourceLag
from umbel.connectors.polling import Poller, seconds_left
from umbel.connectors.sinks import RowChange, SinkPosition, SinkWriter
from umbel.connectors.splits import Split
from umbel.connectors.staged_messages import message_rows
from umbel.connectors.staged_source import StagedSource
from umbel.connectors.staging import StagedPart
from umbel.definitions.arguments import DataConnector, ReadOptions
from umbel.errors import InvalidType, Transient, UmbelError
from umbel.formats.raw_batch import RawBatch, as_bytes
from umbel.types.dtype import DType
from umbel.types.raw import Raw

if TYPE_CHECKING:
    import pyarrow as pa

Offset: TypeAlias = Any
"""Where the next read of a partition begins: plain JSON; None for the beginning."""
ROW = "_row"
_JSON = pl.Schema({ROW: pl.Binary()})


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a partition.

    Args:
        rows: objects with JSON values, dates or decimals; or an Arrow table.
        offset: where the next page begins; plain JSON.
    """

    rows: Sequence[Mapping[str, Any]] | pa.Table
    offset: Offset


class PageReader(Protocol):
    """Reads a system by pages."""

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions.

        They are read one after the other, and new ones may appear.
        """

    def read(self, partition: str, offset: Offset) -> Iterator[Page]:
        """Yield the pages of a partition from an offset on, as many as there are.

        Any exception means that the system does not answer: reading goes on later from the last offset.
        """


@dataclass(frozen=True, kw_only=True)
class PagedConnector(DataConnector):
    """The part of a system that one dataset reads by pages, once per `every`."""

    cdcs: ClassVar[frozenset[str]] = frozenset({"append", "upsert", "debezium"})

    @abstractmethod
    def pages(self) -> PageReader:
        """Return a reader; called once per `every`."""

    def reader_of(self, options: ReadOptions) -> PagedSource:
        return PagedSource(self, options)


@dataclass(frozen=True)
class PagedSource(StagedSource):
    """The reading side of a connector that is read by pages.

    Args:
        connector: the connector.
        options: of the source.
    """

    connector: PagedConnector
    options: ReadOptions

    @property
    def title(self) -> str:
        return self.connector.title

    def examine(self) -> None:
        """Check at commit that the system answers."""
        self._answered(lambda: self._partitions(self.connector.pages()))

    def read_on(self, poller: Poller) -> float:
        state, every = self.stage.state(), self.options.every / 1e6
        wait = seconds_left(state.get("polled_at", 0.0), every)
        if wait > 0 and state.get("loaded"):
            return wait
        poller.progressed(SourceLag(seconds=max(0.0, -wait) if state.get("loaded") else None))
        begun_at, offsets = time.time(), self._offsets(state)
        if self._answered(lambda: self._copy(offsets, poller)):
            last = self.stage.last()
            done = {"offsets": offsets, "part": last.number if last else 0, "polled_at": begun_at, "loaded": True}
            self.stage.save(done)
            poller.progressed(SourceLag(seconds=0.0))
            self.stage.expire(poller.consumed + 1)
        return every

    def _offsets(self, state: Mapping[str, Any]) -> dict[str, Offset]:
        """Return the offset of each partition: as saved, and of pages staged since."""
        found = dict(state.get("offsets", {}))
        for number in self.stage.numbers():
            facts = self.stage.part(number).facts
            if number > state.get("part", 0) and "partition" in facts:
                found[facts["partition"]] = facts["offset"]
        return found

    def _copy(self, offsets: dict[str, Offset], poller: Poller) -> bool:
        """Stage the pages behind some offsets, which advance; return whether all were read.

        A partition that fails holds up no other one: its error is raised at the end.
        """
        reader, failed = self.connector.pages(), list[BaseException]()
        for partition in self._partitions(reader):
            try:
                if not self._copy_partition(reader, partition, offsets, poller):
                    return False
            except (Exception, SystemExit) as error:  # noqa: BLE001  raised below
                failed.append(error)
        if failed:
            raise failed[0]
        return True

    def _copy_partition(self, reader: PageReader, partition: str, offsets: dict[str, Offset], poller: Poller) -> bool:
        """Stage the pages of one partition; return whether there is room for more."""
        for page in reader.read(partition, offsets.get(partition)):
            frame = _staged(page)
            offset = _plain(page.offset, self.title)
            if frame.height:
                self.stage.append(frame, {"partition": partition, "offset": offset})
            offsets[partition] = offset
            if not self.has_room(poller):
                return False
        return True

    def _partitions(self, reader: PageReader) -> Sequence[str]:
        """Return the names of the partitions.

        They are texts: a number would not find its offset again, which is stored as JSON.
        """
        found = list(reader.partitions())
        for each in found:
            if not isinstance(each, str):
                raise InvalidType(
                    f"{self.title}: the partition {each!r:.100} is no text", hint="partitions() returns names"
                )
        return found

    def _answered(self, request: Any) -> Any:
        try:
            return request()
        except UmbelError:
            raise
        except (Exception, SystemExit) as error:  # of another package's code
            raise Transient(
                f"{self.title}: {type(error).__name__}: {error!s:.300}",
                hint="see that the system runs and can be reached",
            ) from error

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a page."""
        part = self.stage.part(int(split["part"]))
        if "report" in part.facts:
            yield self.report_of(part)
            return
        staged, first = self.stage.read(part.number), 0
        for raw in self.rows_of(staged, requested, exact=exact):
            yield self._batch(raw, staged, part, first)
            first += raw.frame.height

    def messages_of(self, staged: pl.DataFrame) -> pl.Series | None:
        return staged[ROW] if staged.schema == _JSON else None

    def rows_of(self, staged: pl.DataFrame, requested: Mapping[str, DType], *, exact: bool) -> Iterator[Raw]:
        messages = self.messages_of(staged)
        if messages is not None:
            yield from message_rows(messages, [None] * len(messages), requested, exact=exact)
        else:
            yield from super().rows_of(staged, requested, exact=exact)

    def _batch(self, raw: Raw, staged: pl.DataFrame, part: StagedPart, first: int) -> RawBatch:
        def where(row: int) -> str:
            return f"{self.title}: {part.facts['partition']}, row {part.first + first + row}"

        def text(row: int) -> bytes:
            found = staged.row(first + row, named=True)
            return found[ROW] or b"" if staged.schema == _JSON else as_bytes(found)

        return RawBatch(raw, part.first + first, where, text)


def _staged(page: Page) -> pl.DataFrame:
    """Return the rows of a page for staging, as JSON bytes or as columns."""
    if isinstance(page.rows, Sequence):
        return pl.DataFrame({ROW: [_line(row) for row in page.rows]}, schema=_JSON)
    made = pl.from_arrow(page.rows)
    assert isinstance(made, pl.DataFrame)
    return made


def _line(row: Any) -> bytes:
    """Return a row as JSON, or a text with the reason against it.

    The text will be a dead letter.
    """
    try:
        line = orjson.dumps(row, default=_text, option=orjson.OPT_UTC_Z | orjson.OPT_SERIALIZE_NUMPY)
        if b"null" not in line:  # as NaN would be written
            return line
    except TypeError:
        line = b""  # the standard library writes integers of any size, and says what is wrong
    try:
        plain = json.dumps(row, default=_text, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return json.dumps(f"no JSON, {error}: {row!r:.1000}").encode()
    return line or plain


def _text(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__} has no form in it")


def _plain(offset: Offset, title: str) -> Offset:
    """Return an offset as it will be read again.

    Raises:
        InvalidType: it is no plain JSON.
    """
    try:
        found = json.loads(json.dumps(offset))
    except (TypeError, ValueError, RecursionError):
        found = None
    if found != offset:
        raise InvalidType(f"{title}: the offset {offset!r:.100} is no plain JSON", hint="text, numbers, lists or dicts")
    return found


class BatchWriter(SinkWriter):
    """Delivers batches of changes, each with a key; the deployment keeps the position.

    After a crash or an error the very same batch comes again with the same key: at least once, and exactly once to a destination
    that does nothing for a key it knows.

    Args:
        id: of the sink.
    """

    keeps_position: ClassVar[bool] = False

    def __init__(self, id: str) -> None:
        self.id = id

    @abstractmethod
    def deliver(self, key: str, changes: Sequence[RowChange]) -> None:
        """Deliver a batch; return once the destination has it.

        Args:
            key: the same whenever the same batch is delivered again, and never for another.
            changes: of the dataset, in order by key.

        Raises:
            Transient: it is delivered again.
        """

    def position(self) -> SinkPosition:
        return SinkPosition()

    def write(self, changes: Sequence[RowChange], position: SinkPosition) -> None:
        self.deliver(f"{self.id}-{position.key}", changes)

    def close(self) -> None:
        return
