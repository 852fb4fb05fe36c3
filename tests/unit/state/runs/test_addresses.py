"""Frames are sorted by address as a plain sort would, whatever the hashes and the order columns."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from umbel.state.runs import addresses
from umbel.state.runs.addresses import merge_frames, stored_frame
from umbel.state.runs.rules import ReplaceRule, TableSchema

SPANS = (1, 40, 2**62)
ORDERS = ({}, {"at": pl.Int64()}, {"at": pl.Int64(), "step": pl.Int64()}, {"at": pl.UInt64()})


def _rows(seed: int, span: int, rows: int = 300) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    low = np.array([], np.int64) if not rows else rng.integers(-span, span, rows)
    return pl.DataFrame(
        {
            "_key": [b"%d" % number for number in rng.integers(0, 40, rows)],
            "at": low,
            "step": rng.integers(0, 3, rows),
            "place": np.arange(rows),
            "_removed": [False] * rows,
        },
        schema_overrides={"_key": pl.Binary, "_removed": pl.Boolean},
    )


@pytest.mark.parametrize("hashes", [1, 7, 2**40])
@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_rows_are_sorted_and_merged_by_address(
    order: dict[str, pl.DataType], span: int, hashes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        addresses, "hash_keys", lambda keys: np.array([int(key) * 2654435761 % hashes for key in keys], np.uint64)
    )
    schema = TableSchema({"place": pl.Int64()}, ReplaceRule(), order)
    columns = ["_key", *order, "place", "_removed"]
    made = [_rows(seed, span).with_columns(pl.col("at").abs()) for seed in (1, 2, 3)]
    cast = [each.cast(dict(order)).select(columns) for each in made]
    frames = [stored_frame(each, schema, "t") for each in cast]
    position = ["_hash", "_key", *order]
    for frame in frames:
        assert frame.equals(frame.sort(position, maintain_order=True))
    merged = merge_frames(frames, schema, complete=False)
    newest: dict[tuple[object, ...], list[int]] = {}
    for each in cast:
        newest |= {
            key: rows["place"].to_list() for key, rows in each.partition_by("_key", *order, as_dict=True).items()
        }
    found = {key: rows["place"].to_list() for key, rows in merged.partition_by("_key", *order, as_dict=True).items()}
    assert found == newest
    assert merged.equals(merged.sort(position, maintain_order=True))


def test_no_rows_are_sorted() -> None:
    schema = TableSchema({"place": pl.Int64()}, ReplaceRule(), {"at": pl.Int64()})
    assert stored_frame(_rows(1, 1, 0).drop("step"), schema, "t").height == 0
