"""Vectorised flattening and rebuilding of columns of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
import polars as pl

from umbel.types.dtype import Refused, present


@dataclass(frozen=True, slots=True)
class Lists:
    """A flattened column of lists.

    Args:
        lengths: the length of each list, 0 for null.
        valid: True for each list that is not null.
        inner: the elements of all lists, one after the other: a column, or Python values.
    """

    lengths: np.ndarray[Any, Any]
    valid: np.ndarray[Any, Any]
    inner: pl.Series | list[Any]

    def together(self, inner: pl.Series) -> pl.Series:
        """Rebuild the column of lists with other elements."""
        import pyarrow as pa

        offsets = np.concatenate(([0], np.cumsum(self.lengths)))
        mask = None if self.valid.all() else pa.array(~self.valid)
        lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), inner.to_arrow(), mask=mask)
        return pl.Series(pl.from_arrow(lists), dtype=pl.List(inner.dtype))

    def rows(self) -> np.ndarray[Any, Any]:
        """Return for each element the number of its list."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def lift(self, errors: dict[int, str], names: pl.Series | None = None) -> dict[int, str]:
        """Return the errors of elements as errors of their lists.

        The reason is prefixed with the position or the name of the element.
        """
        ends = np.cumsum(self.lengths)
        found: dict[int, str] = {}
        for element, reason in sorted(errors.items()):
            row = int(np.searchsorted(ends, element, side="right"))
            position = element - int(ends[row] - self.lengths[row])
            found.setdefault(row, f"[{position if names is None else repr(names[element])}]: {reason}")
        return found


def apart(column: pl.Series) -> Lists:
    """Flatten a List or Array column."""
    import pyarrow.compute as pc

    lists = column if isinstance(column.dtype, pl.List) else column.arr.to_list()
    stored = lists.to_arrow()
    lengths = pc.fill_null(pc.list_value_length(stored), 0).to_numpy()
    valid = stored.is_valid().to_numpy(zero_copy_only=False)
    return Lists(lengths, valid, pl.Series(pl.from_arrow(stored.flatten()), dtype=cast(pl.List, lists.dtype).inner))


def objects_apart(values: Sequence[Any], refuse: Any) -> tuple[Lists, dict[int, str]]:
    """Flatten Python sequences; values other than sequences and nulls are errors.

    Args:
        values: Python values.
        refuse: returns the error for a value that is not a sequence.
    """
    if {*map(type, values)} <= {list, type(None)}:
        return flattened(values, chain.from_iterable), {}
    lengths, valid = np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
    inner: list[Any] = []
    errors: dict[int, str] = {}
    for row, value in present(values, nan_is_null=True):
        try:
            found = elements(value, refuse)
        except Refused as refused:
            errors[row] = refused.message
            continue
        lengths[row], valid[row] = len(found), True
        inner.extend(found)
    return Lists(lengths, valid, inner), errors


def flattened(values: Sequence[Any], content: Callable[[Iterable[Any]], Iterable[Any]]) -> Lists:
    """Flatten Python collections and nulls.

    Args:
        values: collections of a length, and nulls.
        content: returns the elements of all collections, one after the other.
    """
    collections = [value for value in values if value is not None]
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    lengths = np.zeros(len(values), np.int64)
    lengths[valid] = np.fromiter(map(len, collections), np.int64, len(collections))
    return Lists(lengths, valid, list(content(collections)))


def elements(value: Any, refuse: Any) -> Sequence[Any]:
    """Return the elements of a Python sequence or array.

    Raises:
        Refused: the value is not a sequence; strings and bytes do not count as sequences.
    """
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, np.ndarray) and value.ndim:
        return list(value) if value.dtype.kind in "mM" or value.ndim > 1 else value.tolist()
    if hasattr(value, "to_list") and hasattr(value, "dtype"):
        return list(value.to_list())
    raise refuse(value)
