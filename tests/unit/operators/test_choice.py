"""The choice among rows of one instant does not depend on the order in which they are read."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl

from umbel.operators.choice import last_of_instant

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_of_rows_that_are_alike_in_key_time_and_position_one_is_chosen_by_its_values() -> None:
    rows = pl.DataFrame(
        {
            "_key": [b"a", b"a", b"b"],
            "_time": [NOON] * 3,
            "_seq": [5, 5, 5],
            "_at": [NOON] * 3,
            "_weight": [1, 1, 1],
            "value": ["x", "y", "z"],
        }
    )
    chosen = last_of_instant(rows)
    assert chosen["value"].to_list() == ["y", "z"]
    assert last_of_instant(rows.reverse()).equals(chosen)
