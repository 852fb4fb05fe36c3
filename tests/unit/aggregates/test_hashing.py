"""The stored hash: equal in every process and version, different for different values, spread evenly."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from umbel.aggregates.hashing import hash64
from umbel.errors import InvalidType

PINNED = [
    [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1, 0xE4D971771B652C20, 0x8C9F3A5D1B7E2460],
    [0x6E789E6AA1B965F4, 0xDFD342FBA85C5899, 0x8A4206262077CB88, 0xE9D984FB1A3A4FF9, 0x8C9F3A5D1B7E2460],
    [0x4E420765C2DA1091, 0x9535F39896BF2E64],
    [0xDD071FBC904A5ED8, 0x6E789E6AA1B965F4, 0x8C9F3A5D1B7E2460],
]


def test_hashes_never_change() -> None:
    found = [
        hash64(pl.Series([0, 1, -1, None])).to_list(),
        hash64(pl.Series(["", "a", "abcdefgh", "abcdefghi", None])).to_list(),
        hash64(pl.Series([Decimal("1.50"), Decimal("-1.50")], dtype=pl.Decimal(28, 2))).to_list(),
        hash64(pl.Series([[1, 2], [], None])).to_list(),
    ]
    assert found == PINNED


@pytest.mark.parametrize(
    "column",
    [
        pl.Series(range(-50_000, 50_000)),
        pl.Series([f"user-{n}" for n in range(100_000)]),
        pl.Series([[n, -n] for n in range(20_000)]),
        pl.Series([b"\0" * n for n in range(500)]),
        pl.Series([Decimal(n) / 100 for n in range(10_000)], dtype=pl.Decimal(28, 2)),
        pl.Series([[{"key": "a", "value": n}] for n in range(1000)]),
    ],
    ids=lambda column: str(column.dtype),
)
def test_no_collisions_and_even(column: pl.Series) -> None:
    hashes = hash64(column)
    assert hashes.n_unique() == len(column)
    bits = np.unpackbits(hashes.to_numpy().view(np.uint8)).reshape(len(column), 64).mean(axis=0)
    assert np.abs(bits - 0.5).max() < 5 / np.sqrt(len(column))


def test_position_and_length_matter() -> None:
    assert hash64(pl.Series(["abcdefghABCDEFGH", "ABCDEFGHabcdefgh", "abcdefgh"])).n_unique() == 3
    assert hash64(pl.Series([[1, 2], [2, 1], [1], [], [[0][0]], None])).n_unique() == 6
    assert hash64(pl.Series(["a", "a\0", "a\0\0"])).n_unique() == 3


def test_embeddings_hash_like_lists() -> None:
    values = [[0.5, 1.0], [1.0, 0.5], None, [-0.0, 0.0], [0.0, -0.0]]
    hashes = hash64(pl.Series(values, dtype=pl.Array(pl.Float64, 2))).to_list()
    assert hashes == hash64(pl.Series(values, dtype=pl.List(pl.Float64))).to_list()
    assert len(set(hashes)) == 4


def test_slices_hash_like_wholes() -> None:
    for column in (pl.Series(["a", "bb", None, "ccc"]), pl.Series([Decimal(1), Decimal(2), None, Decimal(3)])):
        assert hash64(column[1:]).to_list() == hash64(column).to_list()[1:]


def test_floats_hash_by_value() -> None:
    """As contents of rows: unique counts of floats are refused where they are defined."""
    nan, other = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    zero, minus, *rest = hash64(pl.Series([0.0, -0.0, 0.1, 1.0, float("inf"), nan, other, None])).to_list()
    assert zero == minus == hash64(pl.Series([0]))[0]
    assert rest[3] == rest[4]
    assert len({zero, *rest}) == 6
    assert rest[0] == 0xF823E4ED2FB12A7D


def test_objects_are_refused() -> None:
    with pytest.raises(InvalidType, match="'x'"):
        hash64(pl.Series("x", [object()]))
