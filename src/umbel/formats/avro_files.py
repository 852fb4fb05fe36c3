"""Avro container files; a file is one piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from umbel.errors import PackageError, UmbelError
from umbel.formats.json_lines import JsonLines
from umbel.formats.pieces import FilePart, FileRows, Piece, framed, unreadable
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
                yield framed(part, lines.values(rows, {}), row)
                row += len(rows)
            error = records.error
        if error:
            yield unreadable(part, f"not a readable Avro file: {error}", row)


class _Records:
    """The records of a file up to its damage, if there is one."""

    def __init__(self, file: Any) -> None:
        self._file, self.error = file, ""

    def __iter__(self) -> Iterator[Any]:
        return self._read()

    def _read(self) -> Iterator[Any]:
        try:
            yield from avro().reader(self._file)
        except (UmbelError, FileLostError, FileNotFoundError):
            raise
        except Exception as error:  # fastavro raises many kinds, for content alone
            if isinstance(error, OSError) and error.errno is not None:
                raise
            self.error = f"{type(error).__name__}: {error}"


def avro() -> Any:
    """Return the package that reads Avro.

    Raises:
        PackageError: it is not installed.
    """
    try:
        import fastavro
    except ImportError as error:
        raise PackageError("files of Avro need the package fastavro", hint="pip install 'umbel[s3]'") from error
    return fastavro
