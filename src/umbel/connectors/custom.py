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
from umbel.errors import InvalidType, Transient, UmbelError, text_of
from umbel.formats.raw_batch import RawBatch, as_bytes
from umbel.types.arrow import polars_of
from umbel.types.dtype import DType
from umbel.types.raw import Raw
from umbel.types.years import row_of

if TYPE_CHECKING:
    import pyarrow as pa

Offset: TypeAlias = Any
"""Where the next read of a partition begins: plain JSON; None for the beginning."""
ROW = "_row"
AT_ONCE = 64
"""Partitions that are read at once, a page of each in turn."""
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

    has_partitions: ClassVar[bool] = True

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

        Partitions take turns, so that none falls far behind the others. One that fails holds up no other one: its error is raised
        at the end.
        """
        reader, failed = self.connector.pages(), list[UmbelError]()
        waiting, turns = deque(self._partitions(reader)), deque[tuple[str, Iterator[Page]]]()
        poller.unread = unread = frozenset(waiting)
        while waiting or turns:
            while waiting and len(turns) < AT_ONCE:
                turns.append((waiting[0], self._pages(reader, waiting[0], offsets.get(waiting.popleft()))))
            partition, pages = turns.popleft()
            try:
                poller.requests(f"partition '{partition}'")
                page = next(pages, None)
                if page is None:
                    poller.unread = unread = unread - {partition}
                    continue
                self._take(partition, page, offsets)
            except BaseException as error:  # noqa: BLE001  of another package's code, asyncio's CancelledError too
                failed.append(self._failure(error, f"partition '{partition}': "))
                continue
            finally:
                poller.requests("")
            turns.append((partition, pages))
            if not self.has_room(poller):
                return False
        if failed:
            raise failed[0]
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
        frame, offset = _staged(page), _plain(page.offset, self.title)
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
        if isinstance(error, UmbelError):
            return error
        text = f"{self.title}: {subject}{type(error).__name__}: {text_of(error):.300}"
        line = _line_in(error, type(self.connector).__module__)
        made = Transient(f"{text} (at {line})" if line else text, hint="see that the system runs and can be reached")
        made.__cause__ = error
        return made

    def partition_of(self, split: Split) -> str:
        return str(self.stage.part(int(split["part"])).facts.get("partition", ""))

    def partitions_in(self, facts: Mapping[str, Any]) -> Collection[str]:
        return [facts["partition"]] if "partition" in facts else []

    def known_partitions(self) -> Collection[str]:
        found: Mapping[str, Offset] = self.stage.state().get("offsets", {})
        return found.keys()

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
            found = row_of(staged, first + row)
            return found[ROW] or b"" if staged.schema == _JSON else as_bytes(found)

        return RawBatch(raw, part.first + first, where, text)


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _line_in(error: BaseException, module: str) -> str | None:
    """Return `file:line` of the innermost code of a module's package in a traceback."""
    found, trace, package = None, error.__traceback__, module.partition(".")[0]
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == package:
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _staged(page: Page) -> pl.DataFrame:
    """Return the rows of a page for staging, as JSON bytes or as columns."""
    if isinstance(page.rows, Sequence):
        return pl.DataFrame({ROW: [_line(row) for row in page.rows]}, schema=_JSON)
    import pyarrow as pa

    return polars_of(pa.table(page.rows))


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
