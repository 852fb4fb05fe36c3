"""Tables of Postgres, whose rows it copies out as CSV."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from umbel.connectors.postgres.columns import typed
from umbel.connectors.postgres.server import Server
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.rows import TableSource
from umbel.types.dtype import DType

PART_BYTES = 16 << 20
"""Bytes of text from which on the rows read so far are staged as a part."""


@dataclass(frozen=True)
class PostgresSource(TableSource):
    """A table of Postgres."""

    server: Server

    def typed(self, text: pl.Series, column: Column, requested: DType | None) -> pl.Series:
        return typed(text, column, requested)


def pieces(copy: Any) -> Iterator[bytes]:
    """Yield whole rows of a COPY, about `PART_BYTES` at a time."""
    rows, size = list[bytes](), 0
    for row in copy:
        rows.append(bytes(row))
        size += len(row)
        if size >= PART_BYTES:
            yield b"".join(rows)
            rows, size = [], 0
    if rows:
        yield b"".join(rows)


def parse(data: bytes, names: Sequence[str]) -> pl.DataFrame:
    """Return rows of CSV as columns of text; null is empty without quotes."""
    import pyarrow as pa
    from pyarrow import csv

    places = [str(at) for at in range(len(names))]
    table = csv.read_csv(
        io.BytesIO(data),
        read_options=csv.ReadOptions(column_names=places, use_threads=False, block_size=max(1 << 20, len(data) + 1)),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(places, pa.large_string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.rename(dict(zip(places, names, strict=True)))
