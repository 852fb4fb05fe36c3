"""Completeness: the instants from which on answers are right, where earlier changes were dropped."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Protocol

import polars as pl

from umbel.errors import HistoryDropped
from umbel.graph.graph import GraphNode
from umbel.operators.operator import ALWAYS, NEVER, RowWise
from umbel.types.epochs import EPOCH

SETTINGS = "history= of datasets, UMBEL_CHANGE_LOG_AGE and UMBEL_CHANGE_LOG_BYTES"
REMEDY = f"retain more from now on: {SETTINGS}; or restore a backup that has them: umbel restore"


class Completeness(Protocol):
    """Tells from which instant on answers are right."""

    def of_state(self, state_id: str) -> float:
        """Return the instant for an operator's state, in µs; `ALWAYS` if nothing is missing."""

    def of_log(self, node: GraphNode) -> float:
        """Return the instant since which a node's change log is complete, in µs."""


class Complete:
    """Tells that nothing was ever dropped."""

    def of_state(self, state_id: str) -> float:
        """Return `ALWAYS`."""
        del state_id
        return ALWAYS

    def of_log(self, node: GraphNode) -> float:
        """Return `ALWAYS`."""
        del node
        return ALWAYS


def replayed_since(node: GraphNode, known: Completeness) -> float:
    """Return the instant since which values computed from change logs are right, in µs."""
    return _after(node, tuple(emitted_since(each, known) for each in node.parents))


def emitted_since(node: GraphNode, known: Completeness) -> float:
    """Return the instant since which all changes of a node can be read, in µs."""
    if node.is_logged or not isinstance(node.operator, RowWise):
        return known.of_log(node)
    return replayed_since(node, known)


def computed_since(fresh: Mapping[str, GraphNode], known: Completeness) -> dict[str, float]:
    """Return the instant since which new operators are right, by state id.

    Args:
        fresh: the operators that are computed from change logs, parents first, by state id.
        known: of the others.
    """
    found = dict[str, float]()
    for state_id, node in fresh.items():
        inputs = (
            found[each.state_id] if each.state_id in fresh else emitted_since(each, known) for each in node.parents
        )
        found[state_id] = _after(node, tuple(inputs))
    return found


def _after(node: GraphNode, inputs: tuple[float, ...]) -> float:
    return ALWAYS if max(inputs, default=ALWAYS) == ALWAYS else node.operator.complete_since(inputs)


def check_instants(title: str, since: float, first: int, source: str = "") -> None:
    """Refuse an answer as of an instant before dropped changes.

    Args:
        title: the dataset.
        since: the instant from which on its answers are right, in µs.
        first: the earliest requested instant, in µs.
        source: `from history`, where state may have answers for other instants.

    Raises:
        HistoryDropped: it is before that.
    """
    if first >= since:
        return
    raise HistoryDropped(
        f"dataset '{title}' cannot be answered as of {spelled(first)}: changes that this needs were dropped by the retention of "
        f"change logs ({SETTINGS}); {_oldest(since, source)}",
        hint=REMEDY,
    )


def _oldest(since: float, source: str) -> str:
    """Return a clause with the oldest instant that can still be answered."""
    answered = f"can be answered {source}".strip()
    return f"no instant {answered}" if since == NEVER else f"the oldest instant that {answered} is {spelled(since)}"


def spelled(micros: float) -> str:
    """Return an instant for messages."""
    try:
        at = EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return "an instant before the year 1" if micros < 0 else "an instant after the year 9999"
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def first_of(at: pl.Series) -> int:
    """Return the earliest of some instants, in µs."""
    earliest = at.min()
    assert isinstance(earliest, datetime)
    return (earliest - EPOCH) // timedelta(microseconds=1)
