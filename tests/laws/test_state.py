"""Laws of keys: they sort as their values do, stay apart, and have one shard each."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import polars as pl
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from tests.laws.state_types import INSTANT, SIMPLE, SIMPLE_TYPES, TEXTS, TIMES, null_or
from tests.profiles import examples
from umbel.state.keys import LONGEST, encode_keys, encode_time, shard_of

# keys


def rank(value: Any) -> Any:
    """Return what a value sorts by: null first, numbers before NaN, lists by their elements."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, (1, 0.0) if math.isnan(value) else (0, value + 0.0))
    if isinstance(value, str):
        return (1, value.encode())
    if isinstance(value, dict):
        return (1, tuple(rank(value[name]) for name in sorted(value)))
    if isinstance(value, list | pl.Series):
        return (1, tuple(map(rank, value)))
    return (1, value)


ORDERED = [
    *SIMPLE_TYPES,
    (pl.List(pl.String()), st.lists(null_or(TEXTS), max_size=3)),
    (pl.List(pl.Int64()), st.lists(null_or(SIMPLE[pl.Int64()]), max_size=3)),
    (pl.Array(pl.Int64(), 2), st.lists(null_or(SIMPLE[pl.Int64()]), min_size=2, max_size=2)),
    (
        pl.Struct({"a": pl.String(), "b": pl.Int64()}),
        st.fixed_dictionaries({"a": null_or(TEXTS), "b": null_or(SIMPLE[pl.Int64()])}),
    ),
    (pl.List(pl.List(pl.Boolean())), st.lists(null_or(st.lists(null_or(st.booleans()), max_size=3)), max_size=3)),
]


@given(st.data())
@examples(150, suppress_health_check=list(HealthCheck))
def test_keys_sort_as_their_values_do(data: st.DataObject) -> None:
    columns = data.draw(st.lists(st.sampled_from(ORDERED), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*[null_or(values) for _, values in columns]), min_size=2, max_size=6))
    made = [
        pl.Series(f"c{number}", [row[number] for row in rows], dtype=kind) for number, (kind, _) in enumerate(columns)
    ]
    keys = encode_keys(pl.DataFrame(made)).to_list()
    ranks = [tuple(map(rank, row)) for row in rows]
    for one, key in zip(ranks, keys, strict=True):
        for other, other_key in zip(ranks, keys, strict=True):
            assert (one == other) == (key == other_key)
            assert (one < other) == (key < other_key)
            assert key == other_key or not other_key.startswith(key)


@given(st.lists(null_or(TEXTS | st.text("ab\0\x01\xff", max_size=LONGEST * 2)), min_size=1, max_size=8))
@example(["x" * 1000, "x" * 1000 + "\0", "x" * 64])
def test_long_keys_stay_apart_and_short_enough(texts: list[str | None]) -> None:
    keys = encode_keys(pl.DataFrame({"a": pl.Series(texts, dtype=pl.String)})).to_list()
    assert len(set(keys)) == len(set(texts))
    assert max(map(len, keys)) <= LONGEST
    assert not any(one != other and other.startswith(one) for one in keys for other in keys)


@given(st.lists(TIMES, min_size=1))
def test_instants_sort_as_bytes(instants: list[datetime]) -> None:
    encoded = encode_time(pl.Series(instants, dtype=INSTANT)).to_list()
    assert [at for _, at in sorted(zip(encoded, instants, strict=True))] == sorted(instants)
    assert {len(each) for each in encoded} == {8}


@given(st.lists(null_or(TEXTS)), st.integers(1, 64))
def test_equal_keys_have_one_shard_whatever_is_around_them(texts: list[str | None], shards: int) -> None:
    keys = encode_keys(pl.DataFrame({"a": pl.Series(texts, dtype=pl.String)}))
    found = shard_of(keys, shards).to_list()
    assert all(0 <= shard < shards for shard in found)
    assert found == [shard_of(keys[number : number + 1], shards).item() for number in range(len(keys))]
