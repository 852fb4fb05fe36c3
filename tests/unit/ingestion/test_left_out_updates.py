"""An updated row that a source leaves out ends the row before it: the dataset is the part of the table that it takes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import polars as pl
import pytest

from tests.unit.ingestion.test_rows import TABLE, by, day, envelope, feed, taken
from umbel.definitions.preproc import Evaluated
from umbel.definitions.records import Sampling
from umbel.expr import col
from umbel.ingestion.rows import prepare
from umbel.types.raw import Raw, from_records, rejects
from umbel.types.schema import REPLACING

ONE = {"k": 1, "v": "a", "n": 3, "t": "2024-01-01"}
IS_A = by(col("v") == "a", v=str)


def captured(rows: list[Any], starts: list[datetime | None], *, replaces: bool = False, **options: Any) -> Any:
    """Return the rows of a change capture; those with an instant are updates."""
    raw = from_records(rows, {})
    instants = pl.Series(starts, dtype=pl.Datetime("us", "UTC"))
    mask = instants.is_not_null() if replaces else None
    changed, fed = Raw(raw.frame, raw.rejects, starts=instants, replaces=mask), feed("native", **options)
    return prepare(changed, fed, replace(TABLE, sources=(fed,)))


def changes(found: Any) -> list[Any]:
    return found.frame.select("k", "_at", "_weight").rows() if "_weight" in found.frame.columns else []


@pytest.mark.parametrize("how", [IS_A, by(lambda df: df["v"] == "a")])
def test_an_update_that_where_leaves_out_is_a_deletion(how: Evaluated) -> None:
    rows = [{**ONE, "v": v} for v in "abba"]
    found = captured(rows, [None, None, day(2), day(3)], where=how)
    assert changes(found) == [(1, day(1), 1), (1, day(2), -1), (1, day(3), 1)]
    assert (found.accepted.to_list(), found.rejects.height) == ([0, 2, 3], 0)
    ordered = captured(rows, [None, None, day(2), day(3)], where=how, replaces=True)
    assert changes(ordered)[1] == (1, day(2), -REPLACING)


def test_an_update_of_debezium_that_where_leaves_out_is_a_deletion() -> None:
    late, row = int(day(3).timestamp() * 1000), {**ONE, "v": "b"}
    rows = [
        envelope("c", ONE),
        envelope("u", row, late),
        envelope("c", row, late),
        envelope("u", {**row, "t": "2024-01-04"}, late),
        envelope("u", row),  # without an instant it ends when the row begins
        envelope("u", row, 10**18),
        envelope("u", {**ONE, "n": 4}, late),
    ]
    found = taken(rows, feed("debezium", where=IS_A), TABLE)
    ends = [(1, day(3), -1), (1, day(4), -1), (1, day(1), -1), (1, day(1), -1)]
    assert changes(found) == [(1, day(1), 1), *ends, (1, day(1), 1)]
    assert found.rejects.is_empty()


def test_of_such_an_update_the_key_alone_must_be_valid() -> None:
    rows = [{**ONE, "v": "b", "n": "no number"}, {**ONE, "v": "b", "k": None}, {**ONE, "v": ["b"]}]
    found = captured(rows, [day(2)] * 3, where=IS_A)
    assert changes(found) == [(1, day(2), -1)]
    assert found.rejects["row"].to_list() == [1, 2], "its key is unknown; whether it is left out is unknown"
    made = captured(
        [{**ONE, "v": "b", "raw": "x"}] * 2,
        [day(2), None],
        where=IS_A,
        preproc={"n": by(col("raw").str.parse(int), raw=str)},
    )
    assert (changes(made), made.rejects.height) == ([(1, day(2), -1)], 0)


def test_an_update_that_leaves_a_sample_by_a_value_is_a_deletion() -> None:
    rows = [{**ONE, "k": n, "v": str(n)} for n in range(200)]
    sample = Sampling(0.5, ("v",))
    inserted = {k for k, _, weight in changes(captured(rows, [None, *[day(2)] * 199], sample=sample)) if weight > 0}
    assert 60 < len(inserted) < 140
    found = captured(rows, [day(2)] * 200, sample=sample)
    assert changes(found) == [(k, day(2), 1 if k in inserted else -1) for k in range(200)]
    messages = [envelope("u", row, int(day(2).timestamp() * 1000)) for row in rows]
    assert changes(taken(messages, feed("debezium", sample=sample), TABLE)) == [
        (k, day(1) if k in inserted else day(2), 1 if k in inserted else -1) for k in range(200)
    ]


def test_a_deletion_without_the_columns_of_the_sample_is_one() -> None:
    frame = pl.DataFrame({"k": range(50), "v": [None] * 50, "n": [None] * 50, "t": [None] * 50})
    raw = Raw(frame, rejects({}), deletions=dict.fromkeys(range(50), day(2)))
    assert prepare(raw, feed("native", sample=Sampling(0.5, ("v",))), TABLE).frame.height == 50
    by_key = prepare(raw, feed("native", sample=Sampling(0.5, ("k",))), TABLE).frame.height
    assert 10 < by_key < 40, "of a key that is not in the sample there is nothing to delete"
