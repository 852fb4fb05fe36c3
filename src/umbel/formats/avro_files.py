"""Avro container files; a piece is a range of rows, mostly of whole blocks.

A value that its type does not have, such as a date after the year 9999 or a text that is no UUID, costs its record. Where the end
of a record cannot be found, the rest of its block is lost; where the end of a block cannot be found, the file ends.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import IO, Any, ClassVar

from umbel.errors import UmbelError
from umbel.formats.avro_blocks import Blocks, avro
from umbel.formats.avro_shape import MOST_EMPTY, TOO_DEEP, AvroShape, kind_of
from umbel.formats.avro_values import exact
from umbel.formats.garbage import uncollected
from umbel.formats.json_lines import JsonLines
from umbel.formats.pieces import (
    DIVIDED,
    START,
    Anchor,
    FilePart,
    FileRows,
    Piece,
    evenly,
    framed,
    unopened,
    unreadable,
)
from umbel.formats.raw_batch import as_bytes
from umbel.formats.stored import DamagedError, FileLostError, StoredFile
from umbel.types.dtype import DType

ROWS = 65_536
"""Rows in memory at once."""
PACKED_FACTOR = 4
"""Estimated ratio of uncompressed to compressed size."""
UNREADABLE = "not a readable Avro file"


class AvroFormat:
    """Avro container files: records behind the schema that wrote them."""

    counts_rows: ClassVar[bool] = True

    def pieces(self, stored: StoredFile, begin: int, size: int, anchor: Anchor = START) -> Iterator[Piece]:
        if not stored.size():
            return
        rest = unopened(stored, begin, anchor, size, PACKED_FACTOR)
        if rest is not None:
            yield rest
            return
        pending = Piece(begin, None, 1, is_last=True, anchor=anchor)
        with stored.open() as file:
            for each in _Records(file, anchor).ranges(begin, size):
                if each.begin > pending.begin and pending.weight + each.weight > size:
                    yield replace(pending, end=each.begin, is_last=False, rest=each.anchor)
                    pending = replace(each, end=None, is_last=True)
                else:
                    pending = replace(pending, weight=pending.weight + each.weight)
        yield pending  # up to the end of the file, or to its damage, which the reader reports

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        if part.stored.size() == 0:
            return
        lines = JsonLines(requested, exact=exact)
        with part.stored.open() as file:
            records = _Records(file, part.anchor)
            for rows, row, lost in records.batches(part.begin, part.end):
                yield replace(_batch(part, lines, rows, row), lost=lost)
        if records.error:
            yield unreadable(part, f"{UNREADABLE}: {records.error}", records.row)


class _BlockLostError(Exception):
    """The end of a record cannot be found: the block cannot be read on.

    Args:
        reason: the error.
        rows: how many of its rows are lost.
    """

    def __init__(self, reason: str, rows: int) -> None:
        super().__init__(reason)
        self.rows = rows


@dataclass(frozen=True, slots=True)
class _Refused:
    """A record that cannot be decoded.

    Args:
        reason: the error.
        text: its values without the types that they do not fit, as JSON.
    """

    reason: str
    text: bytes


def _batch(part: FilePart, lines: JsonLines, rows: list[Any], start: int) -> FileRows:
    refused = {row: each for row, each in enumerate(rows) if isinstance(each, _Refused)}
    values = [{} if row in refused else each for row, each in enumerate(rows)] if refused else rows
    found = framed(part, lines.values(values, {row: each.reason for row, each in refused.items()}), start)
    return FileRows(found.raw, found.where, lambda row: refused[row].text if row in refused else found.text(row))


class _Records:
    """The records of a file behind an anchor, up to its damage.

    Args:
        file: at its start.
        anchor: the place of the first row.
    """

    def __init__(self, file: IO[bytes], anchor: Anchor) -> None:
        self._anchor, self.error, self.row, self._lost = anchor, "", 0, 0
        self._blocks: Blocks | None = None
        self._decoder: _Decoder | None = None
        with self._noted():
            blocks = Blocks(file)
            blocks.schema = json.dumps(exact(json.loads(blocks.schema))).encode()
            self._decoder = _Decoder(blocks.schema)
            blocks.go_to(anchor.byte)
            self._blocks = blocks

    def batches(self, begin: int, end: int | None) -> Iterator[tuple[list[Any], int, int]]:
        """Yield the records between two rows, in batches.

        Of each, the records, the number of the first, and how many behind them are lost.
        """
        self.row = begin if self._blocks is None else begin - self._anchor.skipped
        last, reading = (1 << 62) if end is None else end, self._read()
        while self.row < last:
            with uncollected():
                rows, lost = list[Any](islice(reading, min(ROWS, last - self.row))), 0
            if not rows:
                if not self._lost:
                    return
                rows, lost = [_Refused(f"{UNREADABLE}: {self.error}", b"")], self._lost - 1
                self.error, self._lost, reading = "", 0, self._read()
            first, self.row = self.row, self.row + len(rows) + lost
            if self.row > begin:
                here = rows[max(begin - first, 0) :]
                start = max(begin, first)
                yield here, start, self.row - start - len(here)

    def ranges(self, begin: int, size: int) -> Iterator[Piece]:
        """Yield the blocks from a row on, much too large ones in several pieces."""
        row, blocks = begin - self._anchor.skipped, self._blocks
        with self._noted():
            while blocks is not None:
                place = blocks.place
                if not blocks.load():
                    return
                first, row = row, row + blocks.count
                start = max(first, begin)
                weight = len(blocks.data) * (row - start) // max(blocks.count, 1)
                pieces = -(-weight // size) if weight > DIVIDED * size else 1
                for at, behind, bytes_ in evenly(start, row, weight, pieces):
                    yield Piece(at, behind, bytes_, is_last=False, anchor=Anchor(place, at - first))

    def _read(self) -> Iterator[Any]:
        """Yield records up to damage; of the block behind it from the next call on."""
        decoder, blocks = self._decoder, self._blocks
        if decoder is None or blocks is None:
            return
        with self._noted():
            yield from decoder.one_by_one(blocks) if decoder.shape.can_expand else decoder.at_once(blocks)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Note an error of the content."""
        try:
            yield
        except (UmbelError, FileLostError, FileNotFoundError):
            raise
        except _BlockLostError as error:
            self.error, self._lost = str(error), error.rows
        except Exception as error:  # fastavro raises many kinds, for content alone
            if isinstance(error, OSError) and error.errno is not None:
                raise
            self.error = str(error) if isinstance(error, DamagedError) else f"{type(error).__name__}: {error}"


class _Decoder:
    """Decodes the records of a schema.

    Args:
        text: the schema as JSON.
    """

    def __init__(self, text: bytes) -> None:
        self._definition, named = json.loads(text), dict[str, Any]()
        self.shape = AvroShape(avro().parse_schema(json.loads(text), named), named)
        self._variants, self._suspect = dict[int | None, Any](), 0

    def at_once(self, blocks: Blocks) -> Iterator[Any]:
        """Yield the records of all blocks.

        Those of a block with a value that cannot be decoded are decoded one by one.
        """
        while True:
            blocks.restart()
            try:
                for record in avro().reader(blocks):
                    blocks.done += 1
                    yield record
                return
            except (DamagedError, _BlockLostError, UmbelError, FileLostError, OSError):
                raise
            except Exception:  # of many kinds, for a value alone
                if blocks.done >= blocks.count:
                    raise
                yield from self._rest(blocks)

    def one_by_one(self, blocks: Blocks) -> Iterator[Any]:
        """Yield the records of all blocks, each walked before it is decoded."""
        while blocks.load():
            yield from self._rest(blocks)

    def _rest(self, blocks: Blocks) -> Iterator[Any]:
        """Yield the records of a block that are not done, a refused one as such."""
        at, done = 0, blocks.done
        for number in range(blocks.count):
            try:
                end, is_too_deep = self.shape.walk(blocks.data, at)
            except ValueError as error:
                left = blocks.count - max(number, done)
                raise _BlockLostError(
                    f"record {number} of a block, with which {left} are lost: {error}", left
                ) from error
            if end == at and number > MOST_EMPTY:
                left = blocks.count - max(number, done)
                raise _BlockLostError(f"a block has {blocks.count} records without bytes", left)
            if number >= done:
                piece = blocks.data[at:end]
                yield _Refused(TOO_DEEP, piece) if is_too_deep else self._decoded(piece)
            at = end
        blocks.done = blocks.count

    def _decoded(self, piece: bytes) -> Any:
        try:
            return avro().schemaless_reader(io.BytesIO(piece), self.shape.schema, None)
        except Exception as error:  # noqa: BLE001  of many kinds, for a value alone
            return _Refused(self._reason(piece, error), self._text(piece))

    def _reason(self, piece: bytes, error: Exception) -> str:
        """Return the reason that a record is refused, with the first field that has one."""
        fields = self._logical_fields(piece)
        for at in [*range(self._suspect, len(fields)), *range(self._suspect)]:
            try:
                self._loosely(piece, at)
            except Exception as found:  # noqa: BLE001  as above
                self._suspect = at
                return f"'{fields[at]['name']}' is not of its Avro type: {type(found).__name__}: {found}"
        return f"a value is not of its Avro type: {type(error).__name__}: {error}"

    def _logical_fields(self, piece: bytes) -> list[Any]:
        """Return the fields whose logical types may refuse a record.

        They are none if it is refused without these types.
        """
        try:
            self._loosely(piece, None)
        except Exception:  # noqa: BLE001  as above
            return []
        return list(self._definition["fields"]) if kind_of(self._definition) == "record" else []

    def _text(self, piece: bytes) -> bytes:
        try:
            return as_bytes(self._loosely(piece, None))
        except Exception:  # noqa: BLE001  as above
            return piece

    def _loosely(self, piece: bytes, field: int | None) -> Any:
        """Decode a record without logical types but those of a field."""
        if field not in self._variants:
            made = _plain(self._definition)
            if field is not None:
                made["fields"][field] = self._definition["fields"][field]
            self._variants[field] = avro().parse_schema(made)
        variant = self._variants[field]
        return avro().schemaless_reader(io.BytesIO(piece), variant, None, handle_unicode_errors="backslashreplace")


def _plain(schema: Any) -> Any:
    """Return a schema without logical types."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = ("type", "items", "values", "fields")
    return {name: _plain(each) if name in inner else each for name, each in schema.items() if name != "logicalType"}
