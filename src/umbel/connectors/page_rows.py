"""Rows of pages that readers of other packages yield, as they are staged."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from umbel.connectors.staging import OWN
from umbel.errors import InvalidType, text_of
from umbel.types.arrow import check_texts, polars_of
from umbel.types.dtype import is_missing, is_nan

if TYPE_CHECKING:
    import pyarrow as pa

ROW = "_row"
JSON_ROWS = pl.Schema({ROW: pl.Binary()})
"""The schema of staged rows that are JSON."""
COLUMNS = f"{OWN}columns"
"""A column of staged rows that would have that schema, and are columns."""


def staged_rows(rows: Sequence[Any] | pa.Table) -> pl.DataFrame:
    """Return the rows of a page for staging, as JSON bytes or as columns.

    Raises:
        InvalidType: a column of an Arrow table cannot be read.
        InvalidValue: a text in it is not UTF-8.
    """
    if isinstance(rows, Sequence):
        return pl.DataFrame({ROW: [json_line(row) for row in rows]}, schema=JSON_ROWS)
    import pyarrow as pa

    try:
        table = pa.table(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidType(f"the rows of a page are no Arrow table: {text_of(error)}") from error
    frame = _columns_of(table)
    return frame.with_columns(pl.lit(None).alias(COLUMNS)) if frame.schema == JSON_ROWS else frame


def _columns_of(table: pa.Table) -> pl.DataFrame:
    twice = [name for name, times in Counter(table.column_names).items() if times > 1]
    if twice:
        raise InvalidType(f"a page has several columns of the name '{twice[0]}'")
    found = pl.DataFrame(height=table.num_rows)
    for place, (name, kind) in enumerate(zip(table.column_names, table.schema.types, strict=True)):
        check_texts(table.select([place]), "a page")
        try:
            found = found.hstack(polars_of(table.select([place])))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise InvalidType(
                f"column '{name}' of a page is of Arrow's type {kind}, which umbel does not read"
            ) from error
    return found


def json_line(row: Any) -> bytes:
    """Return a row as JSON, or a text with the reason against it.

    The text will be a dead letter.
    """
    try:
        line = orjson.dumps(row, default=_json, option=_OPTIONS)
        if b"null" not in line:  # as NaN would be written
            return line
    except TypeError:  # so are integers of any size
        pass
    try:
        return orjson.dumps(_checked(row), default=_json, option=_OPTIONS | orjson.OPT_NON_STR_KEYS)
    except Exception as error:  # noqa: BLE001  of a value of another package's type
        return json.dumps(f"no JSON, {text_of(error.__cause__ or error)}: {_shown(row):.1000}").encode()


def _shown(row: Any) -> str:
    """Return the text of a row, of which some values may have none."""
    if not isinstance(row, dict):
        return text_or_type(row)
    return "{" + ", ".join(f"{text_or_type(name)}: {text_or_type(value)}" for name, value in row.items()) + "}"


def text_or_type(value: Any) -> str:
    """Return the text of a value, or its type if it has none."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  an integer of more than 4,300 digits, or an object whose `__repr__` raises
        return f"<a value of type {type(value).__name__}>"


_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_SERIALIZE_NUMPY


def _json(value: Any) -> Any:
    """Return a value in a form that orjson writes."""
    if is_missing(value) or is_nan(value):
        return None
    if isinstance(value, Decimal) and value.is_finite():
        return str(value)  # a number would be read as a float
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__} has no form in it")


def _checked(value: Any) -> Any:
    """Return a value whose integers may be of any size, and that has no NaN.

    Raises:
        ValueError: it has one, or an infinity, which would be written as null; or an integer is too long.
    """
    if isinstance(value, Mapping):
        return {key: _checked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_checked(inner) for inner in value]
    if isinstance(value, np.ndarray | np.floating):
        return value if value.dtype.kind in "mM" else _checked(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} has no form in it, and None is a missing value")
    if not isinstance(value, int) or -(2**63) <= value < 2**64:
        return value
    try:
        return orjson.Fragment(str(value))
    except ValueError:
        raise ValueError("an integer of more digits than Python writes has no form in it") from None
