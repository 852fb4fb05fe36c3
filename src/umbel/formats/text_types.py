"""Conversion of text to floats and booleans, for text-only formats."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from umbel.types.dtype import DType
from umbel.types.raw import Raw

TRUTH = {"true": True, "false": False, "1": True, "0": False}
MISSPELT = pl.Object()


def spelled(raw: Raw, requested: Mapping[str, DType]) -> Raw:
    """Return rows of text with requested float and boolean columns converted.

    Text that cannot be converted stays text, for validation to reject with its reason.
    """
    read = [_read(raw.frame[name], dtype.polars()) for name, dtype in requested.items() if name in raw.frame.columns]
    return Raw(raw.frame.with_columns(read), raw.rejects) if read else raw


def _read(text: pl.Series, dtype: pl.DataType) -> pl.Series:
    if text.dtype != pl.String() or dtype not in (pl.Float64(), pl.Boolean()):
        return text
    trimmed = text.str.strip_chars()
    if dtype == pl.Boolean():
        values = trimmed.str.to_lowercase().replace_strict(TRUTH, default=None, return_dtype=dtype)
    else:
        values = trimmed.cast(dtype, strict=False)
    if values.null_count() == text.null_count():
        return values
    mixed = [old if new is None else new for old, new in zip(text, values, strict=True)]
    return pl.Series(text.name, mixed, dtype=MISSPELT)
