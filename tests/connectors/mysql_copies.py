"""First copies of MySQL's tables by small ranges, with a step of the test before each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from umbel.connectors.mysql import copying, dividing, replication
from umbel.connectors.staging import encoded

Step = Callable[[int], None]


class Copies:
    """The ranges that were read, by copy or by what is left of one; a step is made before each range."""

    def __init__(self) -> None:
        self.ranges: list[int] = []
        self.step: Step = lambda _: None

    def read(self, reader: Any, ranges: Any, *_: Any) -> Iterator[Any]:
        """Read ranges one after the other, each in a snapshot of its own."""
        self.ranges.append(len(ranges))
        reader = replace(reader, snapshot_for=0.0)
        with reader.connected() as connection:
            for place, each in enumerate(ranges):
                self.step(place)
                for found, facts in reader.parts(connection, each):
                    yield encoded(found), found.height, facts


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    """Return the copies of this process, by ranges of about a thousand rows."""
    monkeypatch.setattr(copying, "LARGE", 100)
    monkeypatch.setattr(copying, "TIMES_COST", 0)
    monkeypatch.setattr(dividing, "RANGE_ROWS", 1000)
    monkeypatch.setattr(replication, "PART_ROWS", 10)
    made = Copies()
    monkeypatch.setattr(replication, "read_ranges", made.read)
    return made
