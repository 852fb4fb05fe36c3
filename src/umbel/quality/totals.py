"""Cumulative expectation results, stored as row counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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
        found.update({(name, key): value for key, value in _counts(dataset, dataset.expectations, rows)})
    return found


def _counts(dataset: DatasetDefinition, expected: Expectations, rows: pl.DataFrame) -> Iterator[tuple[str, int]]:
    for number, each in enumerate(expected.expected):
        key = f"{PREFIX}{expected.version}:{number}"
        try:
            (watched,) = watch(rows, dataset.dtypes, replace(expected, expected=(each,)))
        except Exception:  # noqa: BLE001  an expectation must not stop processing
            yield f"{key}:unjudged", rows.height
        else:
            yield f"{key}:rows", watched.rows
            yield f"{key}:failed", watched.failed


def results(dataset: DatasetDefinition, placed: str, counts: Counts) -> Iterator[ExpectationResult]:
    """Yield the cumulative results of a dataset's expectations.

    Args:
        dataset: its definition.
        placed: the dataset's name in the graph, the key of its row counts.
        counts: by dataset and name.
    """
    if dataset.expectations is None:
        return
    for number, each in enumerate(dataset.expectations.expected):
        key = f"{PREFIX}{dataset.expectations.version}:{number}"
        rows, failed, unjudged = (counts.get((placed, f"{key}:{of}"), 0) for of in ("rows", "failed", "unjudged"))
        columns = tuple(map(str, each.columns))
        watched = Watched(each.name, columns, rows, failed, each.mostly)
        yield ExpectationResult(dataset.name, dataset.expectations.version, watched, each.arguments, unjudged)
