"""Avro container files; a file is one piece.

A value that its type does not have, such as a date after the year 9999 or a text that is no UUID, costs its record. Where the end
of a record cannot be found, the file ends.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from umbel.errors import UmbelError
from umbel.formats.avro_blocks import Blocks, DamagedError, avro
from umbel.formats.avro_shape import MOST_EMPTY, TOO_DEEP, AvroShape, kind_of
from umbel.formats.avro_values import exact
from umbel.formats.json_lines import JsonLines
from umbel.formats.pieces import FilePart, FileRows, Piece, framed, unreadable
from umbel.formats.raw_batch import as_bytes
from umbel.formats.stored import FileLostError, StoredFile
from umbel.types.dtype import DType

ROWS = 65_536
"""Rows in memory at once."""
PACKED_FACTOR = 4
"""Estimated ratio of uncompressed to compressed size."""


class AvroFormat:
    """Avro container files: records behind the schema that wrote them."""

    def pieces(self, stored: StoredFile, begin: int, size: int) -> Iterator[Piece]:
        del begin, size
        if whole := stored.size():
            yield Piece(0, None, whole * PACKED_FACTOR, is_last=True)

    def read(self, part: FilePart, requested: Mapping[str, DType], *, exact: bool) -> Iterator[FileRows]:
        if part.stored.size() == 0:
            return
        lines, row, error = JsonLines(requested, exact=exact), 0, ""
        with part.stored.open() as file:
            records = _Records(file)
            reading = iter(records)
            while rows := list(islice(reading, ROWS)):
                yield _batch(part, lines, rows, row)
                row += len(rows)
            error = records.error
        if error:
            yield unreadable(part, f"not a readable Avro file: {error}", row)


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
    """The records of a file up to its damage, if there is one."""

    def __init__(self, file: Any) -> None:
        self._file, self.error = file, ""

    def __iter__(self) -> Iterator[Any]:
        return self._read()

    def _read(self) -> Iterator[Any]:
        try:
            blocks = Blocks(self._file)
            blocks.schema = json.dumps(exact(json.loads(blocks.schema))).encode()
            decoder = _Decoder(blocks.schema)
            yield from decoder.one_by_one(blocks) if decoder.shape.can_expand else decoder.at_once(blocks)
        except (UmbelError, FileLostError, FileNotFoundError):
            raise
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
            except (DamagedError, UmbelError, FileLostError, OSError):
                raise
            except Exception:
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
                raise DamagedError(f"record {number} of a block: {error}") from error
            if end == at and number > MOST_EMPTY:
                raise DamagedError(f"a block has {blocks.count} records without bytes")
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
