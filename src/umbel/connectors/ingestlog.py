"""Webhooks as a source: the ingest log of an endpoint, cut into ranges of records."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from umbel.connectors.chunks import CHUNK_BYTES
from umbel.connectors.jsonlines import JsonLines, parse_value
from umbel.connectors.rawbatch import RawBatch
from umbel.connectors.splits import Found, Position, Split
from umbel.connectors.webhook import Webhook, WebhookConnector
from umbel.log.reading import IngestReader, LogRange
from umbel.log.records import Record
from umbel.log.segments import LogPosition
from umbel.types.dtype import DType
from umbel.types.durations import parse_duration
from umbel.types.raw import Raw, rejects


@dataclass(frozen=True)
class EndpointSource:
    """The reading side of a webhook's endpoint. Rows are numbered as in its log.

    Args:
        directory: umbel's folder.
        connector: which endpoint.
    """

    directory: Path
    connector: WebhookConnector

    @cached_property
    def _reader(self) -> IngestReader:
        return IngestReader(self.directory, self.connector.source.name, self.connector.endpoint)

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return the records not read yet, up to a budget in bytes, and the position after them."""
        start = self._reader.start() if position is None else LogPosition.from_json(position)
        ranges, end = self._reader.plan(start, bytes=budget)
        splits = [({"begin": each.begin.to_json(), "end": each.end.to_json()}, each.bytes) for each in ranges]
        return splits, end.to_json()

    def open(self, split: Split, wanted: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a split.

        Raises:
            Terminal: the log is damaged.
        """
        part = LogRange(LogPosition.from_json(split["begin"]), LogPosition.from_json(split["end"]))
        reader, name = JsonLines(wanted, exact=exact), f"{self.connector.source.name}/{self.connector.endpoint}"
        held, size = list[Record](), 0
        for record in self._reader.open(part):
            held.append(record)
            size += record.size
            if size >= CHUNK_BYTES:
                yield _Group(name, part.begin.segment, held).batch(reader)
                held, size = [], 0
        if held:
            yield _Group(name, part.begin.segment, held).batch(reader)

    def expire(self, now: int, read: LogPosition) -> None:
        """Delete what is read and older than the webhook retains it.

        Args:
            now: microseconds since the epoch.
            read: the position up to which every reader is done.
        """
        assert isinstance(self.connector.source, Webhook)
        self._reader.expire(now - parse_duration(self.connector.source.retention), read)


@dataclass(frozen=True)
class _Group:
    """Records that follow each other."""

    name: str
    segment: int
    records: list[Record]

    @property
    def first(self) -> int:
        return self.records[0].row

    @cached_property
    def height(self) -> int:
        return sum(record.entry.rows for record in self.records)

    def batch(self, reader: JsonLines) -> RawBatch:
        """Return the rows of all records."""
        frame = reader.at_once(b"\n".join(_lines(record.entry.payload) for record in self.records))
        if frame is not None and frame.height == self.height:
            return RawBatch(Raw(frame, rejects({})), self.first, self.where, self.text)
        rows, faults = list[Any](), dict[int, str]()
        for record in self.records:
            try:
                rows += _values(record)
            except (ValueError, RecursionError) as error:
                faults |= dict.fromkeys(range(len(rows), len(rows) + record.entry.rows), f"broken JSON: {error}")
                rows += [{}] * record.entry.rows
        return RawBatch(reader.values(rows, faults), self.first, self.where, self.text)

    def where(self, row: int) -> str:
        """Return the place of a row."""
        record = self._record(row)
        return f"{self.name}: segment {self.segment}, byte {record.offset}, row {self.first + row - record.row}"

    def text(self, row: int) -> bytes:
        """Return the bytes of a row; of a payload that cannot be taken apart, all of them."""
        record = self._record(row)
        try:
            value = _values(record)[self.first + row - record.row]
        except (ValueError, RecursionError):
            return record.entry.payload
        try:
            return orjson.dumps(value)
        except TypeError:  # integers beyond 64 bits
            return json.dumps(value).encode()

    def _record(self, row: int) -> Record:
        return self.records[bisect_right(self.records, self.first + row, key=lambda record: record.row) - 1]


def _lines(payload: bytes) -> bytes:
    """Return the objects of a JSON list one per line, or something that is not lines of JSON.

    No JSON object is the beginning of another, so where a cut falls inside one the pieces are no objects: when every
    line turns out to be an object, the lines are the rows.
    """
    rows = payload.strip()
    if not (rows.startswith(b"[") and rows.endswith(b"]")):
        return b"?"
    return rows[1:-1].replace(b"\r", b" ").replace(b"\n", b" ").replace(b"},{", b"}\n{").replace(b"}, {", b"}\n{")


def _values(record: Record) -> list[Any]:
    values = parse_value(record.entry.payload)
    if not isinstance(values, list) or len(values) != record.entry.rows:
        raise ValueError(f"expected a list of {record.entry.rows} rows")
    return values
