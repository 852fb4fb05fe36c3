"""Parquet of lines of JSON with values that only Python reads.

These are NaN, infinities and halves of characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

PIECE = 4 << 20
"""Bytes that are read at once."""
_NUMBER = re.compile(rb"(?<=[:\[,])(?:NaN|-?Infinity)(?=[,\]}])")
_HALF = re.compile(rb"(?<!\\)((?:\\\\)*)\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def write_parquet(lines: Path, target: Path) -> None:
    """Write the records of a file of compact JSON.

    Columns take the smallest type that fits all values. Halves of characters, which Parquet has not, become U+FFFD.

    Raises:
        PolarsError: the records have no common columns.
    """
    if not lines.stat().st_size:
        pl.DataFrame().write_parquet(target)
    elif any(_NUMBER.search(piece) or _HALF.search(piece) for piece in _pieces(lines)):
        _write_odd(lines, target)
    else:
        pl.scan_ndjson(lines, infer_schema_length=None).sink_parquet(target)


def _write_odd(lines: Path, target: Path) -> None:
    """Write records of which Polars cannot read some.

    Their types are those that it finds without these values.
    """
    import pyarrow.parquet as pq

    plain = lines.with_name(f"{lines.name}.plain")
    try:
        with plain.open("wb") as file:
            file.writelines(_NUMBER.sub(b"0.5", _whole(piece)) for piece in _pieces(lines))
        schema = pl.scan_ndjson(plain, infer_schema_length=None).collect_schema()
    finally:
        plain.unlink(missing_ok=True)
    with pq.ParquetWriter(target, pl.DataFrame(schema=schema).to_arrow().schema) as writer:
        for piece in _pieces(lines):
            rows = [json.loads(line) for line in _whole(piece).splitlines()]
            writer.write_table(pl.DataFrame(rows, schema=schema, strict=False).to_arrow())


def _whole(piece: bytes) -> bytes:
    return _HALF.sub(rb"\1\\ufffd", piece)


def _pieces(lines: Path) -> Iterator[bytes]:
    with lines.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece + file.readline()
