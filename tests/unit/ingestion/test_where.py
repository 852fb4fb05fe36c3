"""Rows that `where` leaves out are not checked (api §9.2: preproc, where, then types and nulls)."""

from __future__ import annotations

from typing import Optional

import pytest

from tests.unit.ingestion.test_rows import by, feed, taken
from umbel.definitions.preproc import Evaluated
from umbel.expr import col

EVENTS = [
    {"kind": "buy", "a": 3, "b": "x", "t": "2024-01-01"},
    {"kind": "visit", "a": None, "b": None, "t": None},
    {"kind": "visit", "t": "yesterday"},
    {"kind": "buy", "a": "three", "b": "x", "t": "2024-01-01"},
    "no object",
    {"kind": None, "a": 1, "b": "x", "t": "2024-01-01"},
]


@pytest.mark.parametrize(
    ("how", "undecided"),
    [
        (by(col("kind") == "buy", kind=str), [5]),
        (by(col("kind") == "buy", kind=Optional[str]), []),
        (by(lambda df: df["kind"] == "buy"), []),
        (by(lambda df: df["kind"] == "buy", kind=str), [5]),
    ],
)
def test_rows_that_where_leaves_out_are_not_checked(how: Evaluated, undecided: list[int]) -> None:
    found = taken(EVENTS, feed(where=how))
    assert found.accepted.to_list() == [0]
    assert sorted(set(found.rejects["row"])) == [3, 4, *undecided]


def test_where_reads_a_field_before_its_nulls_are_refused() -> None:
    found = taken(
        [{"a": a, "b": "x", "t": "2024-01-01"} for a in (3, None, "three", 1)], feed(where=by(col("a") > 2, a=int))
    )
    assert (found.accepted.to_list(), found.rejects["row"].to_list()) == ([0], [2])
    missing = taken(
        [{"a": a, "b": "x", "t": "2024-01-01"} for a in (3, None)], feed(where=by(col("a").isnull(), a=int))
    )
    assert (missing.accepted.to_list(), missing.rejects["row"].to_list()) == ([], [1])


@pytest.mark.parametrize(
    ("how", "rejected"),
    [
        (by(col("kind") == "buy", kind=str), []),
        (by(col("a") > 0, a=int), [1]),
        (by(lambda df: df["a"].fillna(0) > 0), [1]),
    ],
)
def test_where_does_not_decide_by_what_preproc_could_not_make(how: Evaluated, rejected: list[int]) -> None:
    rows = [
        {"kind": kind, "b": raw, "t": "2024-01-01"} for kind, raw in (("buy", "1"), ("visit", "x"), ("visit", "-1"))
    ]
    source = feed(preproc={"a": by(col("b").str.parse(int), b=str)}, where=how)
    found = taken(rows, source)
    assert (found.accepted.to_list(), found.rejects["row"].to_list()) == ([0], rejected)
