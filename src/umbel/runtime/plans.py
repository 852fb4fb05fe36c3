"""Batch plans: which splits of which sources a micro-batch reads, written down before it runs.

A plan is a file. A batch that is run again reads the very same splits under the very same definitions, whatever its sources
list by then; so exactly-once asks nothing of a source but that a split can be opened twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

Position = Any


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """One piece of work of stage 0.

    Args:
        dataset: whose rows it has.
        source: the ordinal of the source within the dataset's sources.
        split: what the connector needs to open it; plain JSON.
        size: about how many bytes it has.
    """

    dataset: str
    source: int
    split: Mapping[str, Any]
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The input of one batch.

    Args:
        number: counts from 1.
        revision: the commit whose definitions apply.
        splits: what is read.
        positions: how far each source has been planned, this plan included.
        ended: the keys of the bounded sources that are at their end: nothing is read from them any more.
    """

    number: int
    revision: int
    splits: tuple[PlannedSplit, ...]
    positions: Mapping[str, Position]
    ended: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """About how many bytes it reads."""
        return sum(split.size for split in self.splits)


class Plannable(Protocol):
    """A source of a dataset that can be asked what is new."""

    dataset: str
    source: int
    key: str

    @property
    def is_bounded(self) -> bool:
        """Whether it comes to an end."""

    @property
    def has_ended(self) -> bool:
        """Whether it is bounded and has had nothing new for so long that it is at its end."""

    def plan(self, position: Position | None, budget: int) -> tuple[Sequence[tuple[Mapping[str, Any], int]], Position]:
        """Return splits with their sizes, of about `budget` bytes at the most, and the position after them."""


Sources = Callable[[], tuple[int, Iterable[Plannable]]]
"""Returns the current revision and its sources."""


class Plans:
    """The plans of one job, in a folder.

    Args:
        folder: where they are kept.
        sources: asked each time something is planned.
        budget: bytes of input per batch.
        is_due: whether results wait for a batch, with or without input.
    """

    def __init__(self, folder: Path, sources: Sources, budget: int, is_due: Callable[[], bool]) -> None:
        self._folder, self._sources, self._budget, self._is_due = folder, sources, budget, is_due
        folder.mkdir(parents=True, exist_ok=True)

    def next(self, start: int) -> int:
        """Return the number of the plan after `start`, made now if there is something new; else `start`."""
        if self._path(start + 1).exists():
            return start + 1
        before = self.read(start) if start else Plan(0, 0, (), {})
        plan = self._made(before)
        if plan is None:
            return start
        self._write(plan)
        return plan.number

    def read(self, number: int) -> Plan:
        """Return a plan."""
        content = json.loads(self._path(number).read_bytes())
        splits = tuple(PlannedSplit(**split) for split in content["splits"])
        ended = tuple(content.get("ended", ()))
        return Plan(content["number"], content["revision"], splits, content["positions"], ended)

    def forget(self, number: int, keep: int = 50) -> None:
        """Delete plans which a restart can no longer ask for."""
        old = self._path(number - keep)
        while old.exists():
            old.unlink()
            number -= 1
            old = self._path(number - keep)

    def _made(self, before: Plan) -> Plan | None:
        revision, sources = self._sources()
        positions, splits, left = dict(before.positions), list[PlannedSplit](), self._budget
        ended = []
        for source in sources:
            if source.key in before.ended and source.is_bounded:
                ended.append(source.key)
                continue
            found, position = source.plan(positions.get(source.key), max(left, 0)) if left > 0 else ((), None)
            if found:
                splits += [PlannedSplit(source.dataset, source.source, split, size) for split, size in found]
                positions[source.key] = position
                left -= sum(size for _, size in found)
            elif source.has_ended:
                ended.append(source.key)
        is_new = splits or revision != before.revision or set(ended) != set(before.ended)
        if not is_new and not self._is_due():
            return None
        return Plan(before.number + 1, revision, tuple(splits), positions, tuple(ended))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}.json"

    def _write(self, plan: Plan) -> None:
        path = self._path(plan.number)
        fresh = path.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump(asdict(plan), file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
