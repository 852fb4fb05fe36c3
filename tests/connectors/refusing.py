"""Writers of sinks whose destination refuses rows, and a record of what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from umbel.connectors.sinks import Refusal, RowChange, RowsRefused, SinkPosition


class Recorded:
    """A record of refusals in memory."""

    refused: tuple[Refusal, ...] = ()
    accepted: int = 0

    def settle(self, refused: Sequence[Refusal], accepted: Sequence[RowChange]) -> None:
        self.refused, self.accepted = tuple(refused), len(accepted)

    def divide(self, name: str) -> None:
        raise AssertionError(name)

    def is_divided(self, name: str) -> bool:
        raise AssertionError(name)


def isolated(writer: Any, changes: Sequence[RowChange], batch: int = 1) -> Recorded:
    """Write changes of which some are refused; return the record of these."""
    with pytest.raises(RowsRefused):
        writer.write(changes, SinkPosition(batch))
    found = Recorded()
    writer.write_accepted(changes, SinkPosition(batch), found)
    assert found.accepted == len(changes) - len(found.refused)
    return found
