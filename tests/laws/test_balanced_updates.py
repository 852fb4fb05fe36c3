"""Updates between two strides of a window that leave the number of rows as it was."""

from __future__ import annotations

import pytest

from tests.laws.sources import BEGIN, ITEMS
from tests.laws.test_programs import again_and_again
from tests.laws.twins import Program, Source, Twin
from tests.reference import SECOND, Change
from umbel.aggregates import Average, Stddev, Sum
from umbel.types.windows import Hopping

ROWS = ((2, 0, 142), (0, 0, 152), (0, 1, 154), (0, 2, 158), (0, 5, 161), (1, 3, 163), (1, 4, 172), (0, 0, 181))
"""Key, value and second of each row, which replaces the one before of its key."""


@pytest.mark.parametrize(
    "kind",
    [Stddev, *(pytest.param(each, marks=pytest.mark.nightly) for each in (Average, Sum))],
    ids=lambda kind: kind.__name__,
)
def test_as_many_rows_are_retracted_as_inserted(kind: type) -> None:
    """The deviation left these updates out: their count is 0, their sums are not."""
    items = tuple(
        Change(BEGIN + at * SECOND, BEGIN + at * SECOND, {"no": no, "of": "a", "p": p, "q": None}) for no, p, at in ROWS
    )
    aggregate = kind(of="p", window=Hopping("forever", "10s"), into_field="found")
    grouped = Twin.of("I", ITEMS, appends=False).aggregate(["of"], [aggregate])
    again_and_again(Program.numbered({"I": Source(ITEMS, items)}, {"D": grouped}))
