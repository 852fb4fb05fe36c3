"""Raw batches: what opening a split yields, before any schema has judged it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import polars as pl

from umbel.types.dtype import DType
from umbel.types.raw import Raw, from_records, rejects

SCHEMAS = {"int": pl.Int64(), "float": pl.Float64(), "str": pl.String(), "bool": pl.Boolean()}


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Some rows of a split, in order.

    Args:
        raw: the rows, and what is no row at all.
        first: the number of the first row; numbers order the rows of a source.
        where: the place of a row in the source, for people.
        text: the bytes of a row, as they came.
    """

    raw: Raw
    first: int
    where: Callable[[int], str]
    text: Callable[[int], bytes]


def plain(wanted: Mapping[str, DType]) -> dict[str, pl.DataType]:
    """Return the columns whose JSON values Polars can read as they are stored."""
    found = {name: SCHEMAS.get(str(dtype.plain)) for name, dtype in wanted.items()}
    return {name: dtype for name, dtype in found.items() if dtype is not None}


def parse_lines(lines: list[bytes], wanted: Mapping[str, DType]) -> Raw:
    """Return NDJSON lines as raw rows, one by one: each line that is no object is a reject with its reason."""
    rows, faults = list[Any](), dict[int, str]()
    for number, line in enumerate(lines):
        try:
            rows.append(orjson.loads(line))
        except orjson.JSONDecodeError as error:
            rows.append({})
            faults[number] = f"broken JSON: {error}"
    raw = from_records(rows, wanted)
    return Raw(raw.frame, pl.concat([rejects(faults), raw.rejects]).sort("row")) if faults else raw


def as_bytes(value: Any) -> bytes:
    """Return a row of a frame as JSON, for people."""
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)


def lost(reason: str, count: int = 1) -> Raw:
    """Return rows that are there and cannot be read."""
    return Raw(pl.DataFrame(height=count), rejects(dict.fromkeys(range(count), reason)))


def first_values(lines: Iterable[bytes]) -> dict[str, Any]:
    """Return the first object among some lines, empty when there is none."""
    for line in lines:
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            return {}
        return found if isinstance(found, dict) else {}
    return {}
