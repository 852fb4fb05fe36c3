"""Connectors of other packages: sources read by pages, sinks written by batches.

A package implements `PageReader` or `BatchWriter`; umbel does the rest. Pages are staged, durably, with the offset behind
them: every row is taken once although an API gives other pages when it is asked again.
"""

from __future__ import annotations

import json
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import numpy as np
import polars as pl

from umbel.connectors.call_mark import CallMark
from umbel.connectors.lag import SourceLag
from umbel.connectors.package_errors import transient_of
from umbel.connectors.page_reading import PageReading
from umbel.connectors.page_rows import COLUMNS, JSON_ROWS, ROW, staged_rows, text_or_type
from umbel.connectors.polling import Poller, seconds_left
from umbel.connectors.sinks import RowChange, SinkPosition, SinkWriter
from umbel.connectors.splits import Split
from umbel.connectors.staged_messages import message_rows
from umbel.connectors.staged_source import StagedSource
from umbel.connectors.staging import StagedPart
from umbel.definitions.arguments import DataConnector, ReadOptions
from umbel.errors import InvalidType, UmbelError, encodable
from umbel.formats.raw_batch import RawBatch, as_bytes
from umbel.types.dtype import DType
from umbel.types.raw import Raw
from umbel.types.years import row_of

if TYPE_CHECKING:
    import pyarrow as pa

Offset: TypeAlias = Any
"""Where the next read of a partition begins: plain JSON; None for the beginning."""
AT_ONCE = 64
"""Partitions that are read at once, a page of each in turn."""
SAVED_FOR = 10.0
"""Seconds within a long read after which the offsets are saved, and what batches have read expires."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a partition.

    Args:
        rows: objects with JSON values, dates or, for fields of `Decimal`, decimals; or an Arrow table.
        offset: where the next page begins; plain JSON.
    """

    rows: Sequence[Mapping[str, Any]] | pa.Table
    offset: Offset


class PageReader(Protocol):
    """Reads a system by pages."""

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions.

        A page of each is read in turn, and new ones may appear.
        """

    def read(self, partition: str, offset: Offset) -> Iterator[Page]:
        """Yield the pages of a partition from an offset on, as many as there are.

        Between two pages those of other partitions are read.

        Any exception means that the system does not answer: reading goes on later from the last offset.
        """


@dataclass(frozen=True, kw_only=True)
class PagedConnector(DataConnector):
    """The part of a system that one dataset reads by pages, once per `every`."""

    cdcs: ClassVar[frozenset[str]] = frozenset({"append", "upsert", "debezium"})

    @abstractmethod
    def pages(self) -> PageReader:
        """Return a reader.

        Called once per `every`, and before a partition that failed is read again.
        """

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

    has_partitions: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return self.connector.title

    def examine(self) -> None:
        """Check at commit that the system answers."""
        self._answered(lambda: self._partitions(self.connector.pages()))

    def read_on(self, poller: Poller) -> float:
        """Read all partitions once per `every`, and those that failed again."""
        state = self.stage.state()
        wait, failed = seconds_left(state.get("polled_at", 0.0), self.options.every / 1e6), state.get("failed", [])
        if wait > 0 and not failed:
            return wait
        self._mark.check(self.title)
        with self._mark.calling():
            return self._read_partitions(poller, state, wait, failed)

    @cached_property
    def _mark(self) -> CallMark:
        return CallMark(self.folder / "reading")

    def _read_partitions(self, poller: Poller, state: Mapping[str, Any], wait: float, failed: Sequence[str]) -> float:
        every = self.options.every / 1e6
        begun_at, reader = time.time(), self._answered(self.connector.pages)
        reading = PageReading(poller, state, self._offsets(state), failing=set(failed))
        if wait > 0:
            partitions, begun_at = failed, state["polled_at"]
        else:
            poller.lag = SourceLag(seconds=max(0.0, -wait) if state.get("loaded") else None)
            partitions = self._answered(lambda: self._partitions(reader))
            self._note(partitions, reading)
            poller.unread = set(partitions)
            reading.failing &= poller.unread
            reading.postponed = [] if poller.may_retry else sorted(reading.failing)
            partitions = [each for each in partitions if poller.may_retry or each not in reading.failing]
        if not self._copy(reader, partitions, reading):
            return every
        rest = max(0.0, seconds_left(begun_at, every)) if wait > 0 else every
        is_loaded = bool(state.get("loaded")) or not reading.failed
        self._save(reading, failed=reading.failed, polled_at=begun_at, loaded=is_loaded)
        if reading.failed:
            poller.due = rest
        else:
            poller.progressed(SourceLag(seconds=0.0))
        for error in reading.errors.values():
            raise error
        return rest

    def _save(self, reading: PageReading, **facts: Any) -> None:
        """Save the offsets; what batches have read expires."""
        last = self.stage.last()
        part = last.number if last else 0
        self.stage.save({**reading.state, **facts, "offsets": reading.offsets, "part": part})
        reading.saved_at = time.monotonic()
        self.stage.expire(reading.poller.consumed + 1)

    def _offsets(self, state: Mapping[str, Any]) -> dict[str, Offset]:
        """Return the offset of each partition: as saved, and of pages staged since."""
        found = dict(state.get("offsets", {}))
        for number in self.stage.numbers():
            facts = self.stage.part(number).facts if number > state.get("part", 0) else {}
            if "partition" in facts:
                found[facts["partition"]] = facts["offset"]
        return found

    def _note(self, partitions: Sequence[str], reading: PageReading) -> None:
        """Save new partitions before a page of them is read.

        Else none of them would hold the watermark after a restart.
        """
        if not reading.state.get("offsets", {}).keys() >= set(partitions):
            reading.offsets |= dict.fromkeys(partitions) | reading.offsets
            self._save(reading)

    def _copy(self, reader: PageReader, partitions: Sequence[str], reading: PageReading) -> bool:
        """Stage the pages of partitions; return whether each was read to its end, or failed.

        Partitions take turns, so that none falls far behind the others. One that fails holds up no other one.
        """
        waiting, turns, poller = deque(partitions), deque[tuple[str, Iterator[Page]]](), reading.poller
        while waiting or turns:
            while waiting and len(turns) < AT_ONCE:
                begin = deepcopy(reading.offsets.get(waiting[0]))  # a reader may advance it in place
                turns.append((waiting[0], self._pages(reader, waiting.popleft(), begin)))
            partition, pages = turns.popleft()
            try:
                poller.requests(subject := f"partition '{partition}'")
                self._mark.note(subject)
                page = next(pages, None)
                if page is not None:
                    self._take(partition, page, reading.offsets)
                    self._mark.succeed(subject)
                    turns.append((partition, pages))
                elif poller.unread is not None:
                    poller.unread.discard(partition)
            except BaseException as error:  # noqa: BLE001  of another package's code, asyncio's CancelledError too
                reading.fail(partition, self._failure(error, f"partition '{partition}': "))
                continue
            finally:
                poller.requests("")
            reading.succeed(partition)
            if page is not None and not self.has_room(poller):
                return False
            if time.monotonic() > reading.saved_at + SAVED_FOR:
                self._save(reading)
        return True

    def _pages(self, reader: PageReader, partition: str, offset: Offset) -> Iterator[Page]:
        """Yield the pages of one partition.

        Raises:
            InvalidType: the reader returns something else.
        """
        found: object = reader.read(partition, offset)
        if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
            raise self._wrong(partition, f"read() returned {_kind(found)}, not pages")
        for page in found:
            if not isinstance(page, Page):
                raise self._wrong(partition, f"read() yielded {_kind(page)}, not a Page")
            if isinstance(page.rows, str | bytes) or not (
                isinstance(page.rows, Sequence) or hasattr(page.rows, "__arrow_c_stream__")
            ):
                raise self._wrong(partition, f"the rows of a page are {_kind(page.rows)}")
            yield page

    def _wrong(self, partition: str, text: str) -> InvalidType:
        hint = "yield Page(rows, offset): rows is a list of JSON objects or an Arrow table"
        return InvalidType(f"{self.title}: partition '{partition}': {text}", hint=hint)

    def _take(self, partition: str, page: Page, offsets: dict[str, Offset]) -> None:
        """Stage a page; its partition's offset advances."""
        try:
            frame = staged_rows(page.rows)
        except InvalidType as error:
            raise self._wrong(partition, error.message) from error
        offset = _plain(page.offset, f"{self.title}: partition '{partition}'")
        if offset is None and (frame.height or offsets.get(partition) is not None):
            text = "the offset behind a page is None, where the partition begins: its rows would come again and again"
            raise InvalidType(
                f"{self.title}: partition '{partition}': {text}",
                hint="behind the last page, yield an offset from which later rows are read",
            )
        if frame.height:
            self.stage.append(frame, {"partition": partition, "offset": offset})
        offsets[partition] = offset

    def _partitions(self, reader: PageReader) -> Sequence[str]:
        """Return the names of the partitions, each once.

        They are texts: a number would not find its offset again, which is stored as JSON.
        """
        names: object = reader.partitions()
        if not isinstance(names, Iterable) or isinstance(names, str | bytes):
            raise InvalidType(f"{self.title}: partitions() returned {_kind(names)}", hint="return a list of names")
        found = list(dict.fromkeys(names))
        for each in found:
            if not isinstance(each, str):
                raise InvalidType(
                    f"{self.title}: the partition {each!r:.100} is no text", hint="partitions() returns names"
                )
        return found

    def _answered(self, request: Any) -> Any:
        try:
            return request()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C during a commit
            raise self._failure(error) from error

    def _failure(self, error: BaseException, subject: str = "") -> UmbelError:
        """Return an error of another package's code as a transient one, with its line."""
        return transient_of(error, f"{self.title}: {subject}", type(self.connector).__module__)

    def partition_of(self, split: Split) -> str | None:
        partition: str | None = self.stage.part(int(split["part"])).facts.get("partition")  # none of a report
        return partition

    def partitions_in(self, facts: Mapping[str, Any]) -> Collection[str]:
        return [facts["partition"]] if "partition" in facts else []

    def known_partitions(self) -> Collection[str]:
        return self._offsets(self.stage.state()).keys()

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
        return staged[ROW] if staged.schema == JSON_ROWS else None

    def rows_of(self, staged: pl.DataFrame, requested: Mapping[str, DType], *, exact: bool) -> Iterator[Raw]:
        messages = self.messages_of(staged)
        if messages is not None:
            yield from message_rows(messages, [None] * len(messages), requested, exact=exact)
        else:
            yield from super().rows_of(staged.drop(COLUMNS, strict=False), requested, exact=exact)

    def _batch(self, raw: Raw, staged: pl.DataFrame, part: StagedPart, first: int) -> RawBatch:
        messages = self.messages_of(staged)

        def where(row: int) -> str:
            return encodable(f"{self.title}: {part.facts['partition']}, row {part.first + first + row}")

        def text(row: int) -> bytes:
            if messages is not None:
                return messages[first + row] or b""
            return as_bytes(row_of(staged.drop(COLUMNS, strict=False), first + row))

        return RawBatch(raw, part.first + first, where, text)


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _plain(offset: Offset, subject: str) -> Offset:
    """Return an offset as it will be read again.

    Raises:
        InvalidType: it is no plain JSON.
    """
    try:
        found = json.loads(json.dumps(offset, default=_number))
        is_same = bool(deepcopy(found) == offset)
    except (TypeError, ValueError, RecursionError):  # a comparison of NumPy's or pandas' has no truth value
        is_same = False
    if not is_same:
        text = f"{subject}: the offset {text_or_type(offset):.100} is no plain JSON"
        raise InvalidType(text, hint="text, numbers, lists or dicts")
    return found


def _number(value: Any) -> Any:
    """Return a number of NumPy as one of Python."""
    if not isinstance(value, np.generic):
        raise TypeError("neither JSON nor a number")
    return value.item()


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
