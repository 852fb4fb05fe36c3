"""Orders of rows by columns of whole numbers.

Numbers of 64 bits are sorted several times faster than their stable order is found. So they are sorted with the place of each
behind them, in the last bits; longer ones by the first bits, as many as fit, and by the others where these are equal.

Which sort is fastest depends on the processor: NumPy's takes 5 ns for a number with AVX-512 of Intel, 37 without, as on AMD's,
where that of Polars takes 13. Merging the ordered sequences that are there, as NumPy's stable sort does, takes 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

COMPARED = 1000
"""Up to so many numbers are sorted by comparisons."""
MANY, SHARE = 10_000, 4
"""Chunks of a frame are joined where so many rows are gathered, one of so many at least."""
TIED = 4
"""All numbers are sorted by their last bits, too, where more than one of so many shares its first bits with others."""
LONG = 64
"""Ordered sequences of this average length are merged."""
SAMPLE, TRIALS = 20_000, 5
"""Numbers that sorts are compared with, and how often."""
_BITS = 63

Sort = Callable[["Ints"], "Ints"]


def order_of_numbers(numbers: NDArray[Any]) -> Ints:
    """Return the stable order of non-negative whole numbers of 64 bits."""
    if len(numbers) <= COMPARED:
        return numbers.argsort(kind="stable")
    if (numbers[1:] >= numbers[:-1]).all():
        return np.arange(len(numbers))
    digit = _BITS - (len(numbers) - 1).bit_length()
    low = int(numbers.max()).bit_length() - digit
    return _order_of_high_bits(numbers, low, digit) if low > 0 else _order_of_digits(numbers, 0, digit)


def _order_of_high_bits(numbers: NDArray[Any], low: int, digit: int) -> Ints:
    """Return the stable order of numbers, by their first bits where these differ.

    Few are equal: of hashes next to none, of keys with instants those within less than a millisecond.

    Args:
        numbers: of `low` and `digit` bits.
        low: how many are the last ones.
        digit: how many are the first ones.
    """
    order = _order_of_digits(numbers, low, digit)
    ordered = numbers[order]
    if (ordered[1:] >= ordered[:-1]).all():
        return order
    high = ordered >> low
    follows = np.zeros(len(high), np.bool_)
    follows[1:] = high[1:] == high[:-1]
    several = follows.copy()
    several[:-1] |= follows[1:]
    if TIED * np.count_nonzero(several) > len(numbers):
        order = _order_of_digits(numbers, 0, low)
        return order[_order_of_digits(numbers[order], low, digit)]
    last = (ordered[several] & ((1 << low) - 1)).astype(np.int64)
    tied = order[several]
    order[several] = tied[order_of_numbers(np.cumsum(~follows[several]) << low | last)]
    return order


def _order_of_digits(numbers: NDArray[Any], begin: int, bits: int) -> Ints:
    """Return the stable order of numbers by some of their bits.

    Those leave room for the places of the numbers.
    """
    places = _BITS - bits
    digits: Ints = ((numbers >> begin) & ((1 << bits) - 1)).astype(np.int64, copy=False)
    digits <<= places
    digits |= np.arange(len(digits))
    found: Ints = sorted_numbers(digits) & ((1 << places) - 1)
    return found


def sorted_numbers(numbers: Ints) -> Ints:
    """Return numbers in order; the result may be read-only."""
    sequences = np.count_nonzero(numbers[1:] < numbers[:-1])
    if len(numbers) <= COMPARED or sequences * LONG < len(numbers):
        return np.sort(numbers, kind="stable")
    return _fastest()(numbers)


@cache
def _fastest() -> Sort:
    """Return the sort that is fastest for numbers in random order on this processor."""
    sample = np.random.default_rng(0).integers(0, 1 << _BITS, SAMPLE)
    return min(SORTS, key=lambda sort: _seconds(sort, sample))


def _sorted_by_numpy(numbers: Ints) -> Ints:
    return np.sort(numbers)


def _sorted_by_polars(numbers: Ints) -> Ints:
    return pl.Series(numbers).sort(multithreaded=False).to_numpy()


SORTS: tuple[Sort, ...] = (_sorted_by_numpy, _sorted_by_polars)


def _seconds(sort: Sort, numbers: Ints) -> float:
    found = []
    for _ in range(TRIALS):
        begun = time.thread_time()
        sort(numbers)
        found.append(time.thread_time() - begun)
    return min(found)


def order_of(*columns: Ints) -> Ints:
    """Return the stable order of rows by some columns of integers, the most significant first.

    They are packed into one number where possible, which sorts faster; else they are sorted by each in turn, the last one first.
    """
    packed = packed_numbers(columns)
    if packed is not None:
        return order_of_numbers(packed)
    order = order_of_numbers(_from_zero(columns[-1]))
    for column in reversed(columns[:-1]):
        order = order[order_of_numbers(_from_zero(column)[order])]
    return order


def _from_zero(column: Ints) -> NDArray[np.uint64]:
    """Return the distances of numbers from the smallest one."""
    numbers = column.astype(np.uint64)  # 63 bits may be too few for them
    numbers -= numbers[column.argmin()]
    return numbers


def packed_numbers(columns: Sequence[Ints]) -> Ints | None:
    """Return one number for each row with the same order as some columns.

    The first column is the most significant one. None where 63 bits are not enough.
    """
    first = columns[0]
    packed, size = np.zeros(len(first), np.int64), 1
    for column in columns if len(first) else ():
        low = int(column.min())
        span = int(column.max()) - low + 1
        size *= span
        if size >= 1 << 63:
            return None
        if span > 1:
            packed *= span
            packed += (column - low).astype(np.int64, copy=False)
    return packed


def gathered(rows: pl.DataFrame, places: Ints) -> pl.DataFrame:
    """Return some rows in the order given.

    All of them exist: an index that may be negative would be checked. To find the chunk of each row takes several times longer
    than to join the chunks, one column after the other.
    """
    index = pl.Series(places.astype(np.uint32))
    if len(places) < MANY or rows.height > SHARE * len(places) or max(rows.n_chunks("all"), default=1) == 1:
        return rows[index]
    return pl.DataFrame([column.to_frame().rechunk()[index].to_series() for column in rows.iter_columns()])
