"""Webhook: rows pushed over HTTP."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from umbel.connectors.splits import Found, Landmark, Position, SourceSize, Split, SplitSource
from umbel.definitions.arguments import DataConnector, DataSource
from umbel.errors import InvalidType, InvalidValue
from umbel.formats.chunks import CHUNK_BYTES
from umbel.formats.json_lines import JsonLines, parse_value
from umbel.formats.raw_batch import RawBatch, lost
from umbel.log.reading import Damage, IngestReader, LogRange
from umbel.log.records import LogRecord
from umbel.log.redaction import without_erased
from umbel.log.segments import LogPosition, directory_of
from umbel.types.arguments import checked_call
from umbel.types.dtype import DType
from umbel.types.durations import parse_duration
from umbel.types.long_numbers import elements
from umbel.types.raw import Raw, rejects

_NAMED = 'webhook.endpoint("orders")'


@dataclass(frozen=True, kw_only=True)
class WebhookConnector(DataConnector):
    """One endpoint of a webhook."""

    endpoint: str

    is_stream: ClassVar[bool] = True
    placed_by: ClassVar[tuple[str, ...]] = ("source_name", "endpoint")

    @property
    def letter_format(self) -> Any:
        return "json"

    def __post_init__(self) -> None:
        """Leave names to the commit, which reports all that cannot be stored."""

    def check_names(self) -> None:
        """Refuse names that the folder of a log cannot have."""
        directory_of(Path(), self.source.name, self.endpoint)

    def reader(self, directory: Path) -> EndpointSource:
        return EndpointSource(directory, self)


@dataclass(frozen=True, kw_only=True)
class Webhook(DataSource):
    """Rows pushed over HTTP by `client.log` or any JSON client.

    Args:
        retention: the time for which rows are retained for datasets committed later.
    """

    retention: str = "7d"

    needs: ClassVar[str] = "an endpoint: .endpoint(...)"

    def __post_init__(self) -> None:
        try:
            parse_duration(self.retention)
        except (InvalidType, InvalidValue) as error:
            raise InvalidValue(f"Webhook '{self.name}': retention: {error.message}", hint=error.hint) from error

    @checked_call
    def endpoint(self, endpoint: str) -> WebhookConnector:
        """Return the connector for one endpoint.

        Raises:
            InvalidType: the name is no text. One that cannot be stored is reported by the commit.
        """
        name: Any = endpoint
        if not isinstance(name, str):
            raise InvalidType(f"Webhook '{self.name}': an endpoint is a text, found {name!r:.80}", hint=_NAMED)
        return WebhookConnector(source=self, endpoint=endpoint)


MAX_BODY = 32 << 20
"""Bytes of the largest request body that a server reads, and so of the largest row."""
MOST_SHOWN = 64 << 10
"""The maximum number of bytes retained of a damaged piece."""


@dataclass(frozen=True)
class EndpointSource(SplitSource):
    """The reader of a webhook's endpoint, with rows numbered as in its log.

    Args:
        directory: umbel's folder.
        connector: the endpoint.
    """

    directory: Path
    connector: WebhookConnector

    opens_at_once: ClassVar[bool] = True

    @cached_property
    def _reader(self) -> IngestReader:
        return IngestReader(self.directory, self.connector.source.name, self.connector.endpoint)

    @property
    def log(self) -> Path:
        """The folder of the log."""
        return self._reader.directory

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return the unread records up to a byte budget, and the position after them."""
        start = self._reader.start() if position is None else LogPosition.from_json(position)
        ranges, end = self._reader.plan(start, bytes=budget)
        splits = [({"begin": each.begin.to_json(), "end": each.end.to_json()}, each.bytes) for each in ranges]
        return splits, end.to_json()

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a split.

        Each damaged piece of it is one rejected record.
        """
        part = LogRange(LogPosition.from_json(split["begin"]), LogPosition.from_json(split["end"]))
        reader, name = JsonLines(requested, exact=exact), f"{self.connector.source.name}/{self.connector.endpoint}"
        states, size, damage = list[LogRecord](), 0, list[Damage]()
        for record in self._reader.open(part, damage.append):
            if record.entry.is_redacted:
                if states:
                    yield from _RequestGroup(name, part.begin.segment, states).batches(reader)
                    states, size = [], 0
                for piece in without_erased(record):
                    yield from _RequestGroup(name, part.begin.segment, [piece]).batches(reader)
                continue
            states.append(record)
            size += record.size
            if size >= CHUNK_BYTES:
                yield from _RequestGroup(name, part.begin.segment, states).batches(reader)
                states, size = [], 0
        if states:
            yield from _RequestGroup(name, part.begin.segment, states).batches(reader)
        yield from (_lost(name, part.begin.segment, each) for each in damage)

    def location_of(self, number: int, landmark: Landmark | None) -> str:
        """Return the position of a row in the endpoint's log."""
        del landmark
        return f"{self.connector.source.name}/{self.connector.endpoint}, row {number}"

    def measure(self, position: Position) -> SourceSize:
        """Return the rows and bytes of the log behind a position, by its index."""
        start = self._reader.start() if position is None else LogPosition.from_json(position)
        ranges, end = self._reader.plan(start)
        return SourceSize(max(0, end.row - start.row), sum(each.bytes for each in ranges))

    def check(self, position: Position) -> None:
        """Check that reading can resume at a position.

        Raises:
            Damaged: the log lacks records that were read up to that position.
        """
        if position is not None:
            self._reader.check(LogPosition.from_json(position))

    def expire(self, now: int, read: LogPosition, most: int = 0) -> None:
        """Delete the records that are read and older than the retention.

        Args:
            now: µs since the epoch.
            read: the position up to which every reader has read.
            most: bytes from which on records that are read are deleted sooner; 0 for any number.
        """
        assert isinstance(self.connector.source, Webhook)
        self._reader.expire(now - parse_duration(self.connector.source.retention), read, most)


@dataclass(frozen=True)
class _RequestGroup:
    """Consecutive records."""

    name: str
    segment: int
    records: list[LogRecord]

    @property
    def first(self) -> int:
        return self.records[0].row

    @cached_property
    def height(self) -> int:
        return sum(record.entry.rows for record in self.records)

    def batches(self, reader: JsonLines) -> Iterator[RawBatch]:
        """Yield the rows of all records."""
        frame = reader.at_once(b"\n".join(_lines(record.entry.payload) for record in self.records))
        if frame is not None and frame.height == self.height:
            yield self._batch(Raw(frame, rejects({})), 0)
            return
        rows, errors = list[Any](), dict[int, str]()
        for record in self.records:
            try:
                rows += reader.revived(_values(record), record.entry.payload)
            except (ValueError, RecursionError) as error:
                errors |= dict.fromkeys(range(len(rows), len(rows) + record.entry.rows), f"broken JSON: {error}")
                rows += [{}] * record.entry.rows
        begin = 0
        for raw in reader.portions(rows, errors):
            yield self._batch(raw, begin)
            begin += raw.frame.height

    def _batch(self, raw: Raw, begin: int) -> RawBatch:
        """Return some rows of the records, from one on."""
        if not begin:
            return RawBatch(raw, self.first, self.where, self.text, self.request)
        where, text, request = ((lambda row, of=of: of(begin + row)) for of in (self.where, self.text, self.request))
        return RawBatch(raw, self.first + begin, where, text, request)

    def request(self, row: int) -> int:
        """Return the number of the first row of a row's request."""
        return self._record(row).row

    def where(self, row: int) -> str:
        """Return the location of a row."""
        record = self._record(row)
        return f"{self.name}: segment {self.segment}, byte {record.offset}, row {self.first + row - record.row}"

    def text(self, row: int) -> bytes:
        """Return the bytes of a row.

        For a payload that cannot be parsed, all of its bytes.
        """
        record = self._record(row)
        try:
            return bytes(self._texts(record)[self.first + row - record.row])
        except ValueError:
            return record.entry.payload

    @cached_property
    def _cut(self) -> dict[int, Sequence[Any]]:
        return {}

    def _texts(self, record: LogRecord) -> Sequence[Any]:
        """Return the texts of the rows of a record, cut once and cached.

        Raises:
            ValueError: the payload cannot be cut.
        """
        if record.offset not in self._cut:
            try:
                self._cut[record.offset] = elements(record.entry.payload)
            except ValueError:
                self._cut[record.offset] = []
        found = self._cut[record.offset]
        if len(found) != record.entry.rows:
            raise ValueError(f"expected a list of {record.entry.rows} rows")
        return found

    def _record(self, row: int) -> LogRecord:
        return self.records[bisect_right(self.records, self.first + row, key=lambda record: record.row) - 1]


def _lost(name: str, segment: int, damage: Damage) -> RawBatch:
    """Return an unreadable piece of the log as one rejected record."""
    where = f"{name}: segment {segment}, byte {damage.offset}, {damage.size} bytes, row {damage.row}"
    return RawBatch(lost(str(damage)), damage.row, lambda _: where, lambda _: damage.raw(MOST_SHOWN), is_damage=True)


def _lines(payload: bytes) -> bytes:
    """Return the objects of a JSON list one per line, by cutting text.

    The result is not lines of JSON if the payload cannot be cut.

    No JSON object is a prefix of another, so if a cut falls inside one, the pieces are not objects: if every
    line is an object, the lines are the rows.
    """
    rows = payload.strip()
    if not (rows.startswith(b"[") and rows.endswith(b"]")):
        return b"?"
    return rows[1:-1].replace(b"\r", b" ").replace(b"\n", b" ").replace(b"},{", b"}\n{").replace(b"}, {", b"}\n{")


def _values(record: LogRecord) -> list[Any]:
    values = parse_value(record.entry.payload)
    if not isinstance(values, list) or len(values) != record.entry.rows:
        raise ValueError(f"expected a list of {record.entry.rows} rows")
    return values
