"""Lists of keys: looked up element by element, and put together again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from umbel.errors import InvalidValue


def lengths(columns: Mapping[str, pl.Series]) -> npt.NDArray[np.int64]:
    """Return how many keys each row has.

    Args:
        columns: one column of lists per key, by the feature's fully qualified name. A null list has no keys.

    Raises:
        InvalidValue: the lists of a row differ in length.
    """
    counted = {name: column.list.len().fill_null(0).cast(pl.Int64).to_numpy() for name, column in columns.items()}
    (first, expected), *others = counted.items()
    for name, found in others:
        if not np.array_equal(expected, found):
            row = int(np.flatnonzero(expected != found)[0])
            raise InvalidValue(
                f"lists of keys differ in length: in row {row}, {first} has {expected[row]} and {name} has {found[row]}",
                hint="give lists of one length in every row",
            )
    return expected


def flat(column: pl.Series) -> pl.Series:
    """Return the elements of all lists, one after the other."""
    return column.explode(empty_as_null=False, keep_nulls=False)


def regrouped(values: pl.Series, counts: npt.NDArray[np.int64]) -> pl.Series:
    """Return values as lists again, of the lengths they were taken from."""
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pl.Series(values.name, pl.from_arrow(pa.LargeListArray.from_arrays(offsets, values.to_arrow())))
