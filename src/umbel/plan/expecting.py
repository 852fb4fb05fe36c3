"""Expectations over time: what each has judged so far, kept as counts of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from umbel.plan.definitions import DatasetDefinition, Expectations
from umbel.plan.graph import Graph
from umbel.plan.watching import Watched, watch
from umbel.types.schema import WEIGHT

PREFIX = "expect:"
"""What the names of the counts begin with."""

Counts = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Result:
    """What an expectation has judged so far.

    Args:
        dataset: whose rows.
        version: of the list it is in.
        watched: the expectation and its counts.
        arguments: what it was given.
        unjudged: rows it could not judge, as when their column does not exist.
    """

    dataset: str
    version: int
    watched: Watched
    arguments: Mapping[str, Any]
    unjudged: int

    @property
    def share(self) -> float:
        """The share of rows that passed; 1 where there was none to judge."""
        return (self.watched.rows - self.watched.failed) / self.watched.rows if self.watched.rows else 1.0

    @property
    def plain(self) -> dict[str, Any]:
        """It as JSON."""
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
    """Return how many of the rows that changes insert pass and fail the expectations of their datasets.

    Args:
        graph: its datasets have the expectations.
        logged: changes, by the number of the node that made them.
    """
    found = Counter[tuple[str, str]]()
    for name, dataset in graph.datasets.items():
        frames = list(logged.get(graph.outputs[name].number, ()))
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
        except Exception:  # noqa: BLE001  what is expected cannot stop what is processed
            yield f"{key}:unjudged", rows.height
        else:
            yield f"{key}:rows", watched.rows
            yield f"{key}:failed", watched.failed


def results(dataset: DatasetDefinition, placed: str, counts: Counts) -> Iterator[Result]:
    """Yield what the expectations of a dataset have judged so far.

    Args:
        dataset: its definition.
        placed: its name in the graph, under which rows are counted.
        counts: by dataset and name.
    """
    if dataset.expectations is None:
        return
    for number, each in enumerate(dataset.expectations.expected):
        key = f"{PREFIX}{dataset.expectations.version}:{number}"
        rows, failed, unjudged = (counts.get((placed, f"{key}:{of}"), 0) for of in ("rows", "failed", "unjudged"))
        columns = tuple(map(str, each.columns))
        watched = Watched(each.name, columns, rows, failed, each.mostly)
        yield Result(dataset.name, dataset.expectations.version, watched, each.arguments, unjudged)
