"""Cumulative expectation results, stored as row counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from umbel.definitions.records import DatasetDefinition, Expectations
from umbel.graph.graph import Graph
from umbel.quality.checks import Watched, watch
from umbel.types.schema import WEIGHT

PREFIX = "expect:"
"""The prefix of the counts' names."""

Counts = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """The cumulative result of an expectation.

    Args:
        dataset: the dataset's name.
        version: of the list of expectations.
        watched: the expectation and its counts.
        arguments: the arguments of the expectation.
        unjudged: the number of rows it could not check, for example since their column does not exist.
    """

    dataset: str
    version: int
    watched: Watched
    arguments: Mapping[str, Any]
    unjudged: int

    @property
    def share(self) -> float:
        """The share of rows that passed; 1 if no row was checked."""
        return (self.watched.rows - self.watched.failed) / self.watched.rows if self.watched.rows else 1.0

    @property
    def plain(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "dataset": self.dataset,
            "expectation": self.watched.expectation,
            "version": self.version,
            "arguments": {name: value for name, value in self.arguments.items() if value is not None},
            "mostly": self.watched.mostly,
            "rows": self.watched.rows,
            "failed": self.watched.failed,
            "unjudged": self.unjudged,
            "share": self.share,
            "holds": self.watched.holds,
        }


def count(graph: Graph, logged: Mapping[int, Iterable[pl.DataFrame]]) -> Counter[tuple[str, str]]:
    """Count the inserted rows that pass and fail their datasets' expectations.

    Args:
        graph: the graph of the datasets with the expectations.
        logged: changes, by the number of the node that emitted them.
    """
    found = Counter[tuple[str, str]]()
    for name, dataset in graph.datasets.items():
        node = graph.outputs.get(name)  # None while the node awaits its history
        frames = [] if node is None else list(logged.get(node.number, ()))
        if dataset.expectations is None or not frames:
            continue
        rows = pl.concat(frames).filter(pl.col(WEIGHT) > 0)
        state_id = "" if node is None else node.state_id
        found.update({(name, key): value for key, value in _counts(dataset, dataset.expectations, state_id, rows)})
    return found


def _key(expected: Expectations, number: int, state_id: str) -> str:
    """Return the beginning of the counts' names of an expectation.

    Versions of a dataset have the same name, one after the other, and rows in common, which each judges.
    """
    return f"{PREFIX}{expected.version}:{number}:{state_id}"


def _counts(
    dataset: DatasetDefinition, expected: Expectations, state_id: str, rows: pl.DataFrame
) -> Iterator[tuple[str, int]]:
    for number, each in enumerate(expected.expected):
        key = _key(expected, number, state_id)
        try:
            (watched,) = watch(rows, dataset.dtypes, replace(expected, expected=(each,)))
        except Exception:  # noqa: BLE001  an expectation must not stop processing
            yield f"{key}:unjudged", rows.height
        else:
            yield f"{key}:rows", watched.rows
            yield f"{key}:failed", watched.failed


def results(
    dataset: DatasetDefinition, names: Sequence[str], state_id: str, counts: Counts
) -> Iterator[ExpectationResult]:
    """Yield the cumulative results of a dataset's expectations.

    Args:
        dataset: its definition.
        names: of the dataset in the graph, the keys of its row counts: during a backfill it has another one.
        state_id: of its node, which versions do not share.
        counts: by dataset and name.
    """
    expected = dataset.expectations
    if expected is None:
        return
    for number, each in enumerate(expected.expected):
        keys = [_key(expected, number, state_id)]
        if dataset.version == 1:  # older versions of umbel counted all versions of a dataset together
            keys.append(f"{PREFIX}{expected.version}:{number}")
        rows, failed, unjudged = (
            sum(counts.get((name, f"{key}:{of}"), 0) for name in dict.fromkeys(names) for key in keys)
            for of in ("rows", "failed", "unjudged")
        )
        watched = Watched(each.name, tuple(map(str, each.columns)), rows, failed, each.mostly)
        yield ExpectationResult(dataset.name, expected.version, watched, each.arguments, unjudged)
