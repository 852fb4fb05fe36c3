"""Batch plans: the splits of the sources that a micro-batch reads, written before it runs.

A plan is a file. A batch that is run again reads the very same splits under the very same definitions, whatever its sources
list by then; so exactly-once requires of a source only that a split can be opened twice. Only a plan of which nothing is stored
yet may be written anew. The file has a checksum: a plan with one digit changed would read other rows.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from umbel.errors import Damaged
from umbel.log.reading import RESTORE
from umbel.state import disk
from umbel.state.stored_json import parse_stored

Position = Any
LONGEST_REST = 60.0
"""Seconds after which a source is planned again at the latest that did not answer when it was read."""


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """One piece of work of stage 0.

    Args:
        dataset: the dataset of its rows.
        source: the ordinal of the source within the dataset's sources.
        split: the connector's description of it; plain JSON.
        size: its approximate size in bytes.
    """

    dataset: str
    source: int
    split: Mapping[str, Any]
    size: int

    @property
    def is_replay(self) -> bool:
        """True if it has dead letters of the source, which are tried again."""
        return "replay" in self.split


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The input of one batch.

    Args:
        number: counts from 1.
        revision: the commit whose definitions apply.
        splits: the splits to read.
        positions: the position each source is planned up to, this plan included.
        ended: the keys of the bounded sources that are at their end: nothing is read from them any more.
        latest: the latest event time a live source may have, in µs since the epoch; None for any. It is part of the plan so that
            a batch that is run again refuses the same rows.
        behind: the keys of the sources that have more input than this plan and those before it read.
        loading: the keys of the sources of which rows that existed already are still read, in no order of event time.
        unread: the partitions with rows that neither this plan nor those before it read, by the keys of their sources; none for
            those that had some in the plan before.
        away: the sources that did not answer when they were read, by their keys: how often, and the time, in seconds since the
            epoch, before which they are not planned again.
    """

    number: int
    revision: int
    splits: tuple[PlannedSplit, ...]
    positions: Mapping[str, Position]
    ended: tuple[str, ...] = ()
    latest: int | None = None
    behind: tuple[str, ...] = ()
    loading: tuple[str, ...] = ()
    unread: Mapping[str, Sequence[str]] = field(default_factory=dict)
    away: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Its approximate input in bytes."""
        return sum(split.size for split in self.splits)


class Plannable(Protocol):
    """A source of a dataset that can be polled for new splits."""

    dataset: str
    source: int
    key: str
    trouble: str

    @property
    def is_bounded(self) -> bool:
        """True if it comes to an end."""

    @property
    def has_ended(self) -> bool:
        """True if it is bounded and idle long enough to be at its end."""

    @property
    def is_loading(self) -> bool:
        """True while rows that exist already are still being read for the first time."""

    @property
    def loads_unordered(self) -> bool:
        """True if these rows are read in no order of event time."""

    def unread_partitions(self, position: Position | None) -> Collection[str]:
        """Return the partitions with rows beyond a position, as of the last `plan`."""

    def read_ahead(self) -> None:
        """Begin to read; called for all sources before the first is planned."""

    def plan(self, position: Position | None, budget: int) -> tuple[Sequence[tuple[Mapping[str, Any], int]], Position]:
        """Return splits with their sizes, of about `budget` bytes, and the next position."""

    def check(self, position: Position | None) -> None:
        """Raise Damaged if reading cannot go on at a position."""


Sources = Callable[[], tuple[int, Iterable[Plannable]]]
"""Returns the current revision and its sources."""


@dataclass(slots=True)
class _Budget:
    """The bytes that a plan may still read; the caller subtracts planned bytes."""

    left: int

    def shares(self, sources: Sequence[Plannable], late: Container[str], turn: int) -> Iterator[tuple[Plannable, int]]:
        """Yield sources with the bytes that each may plan, 0 for none.

        All begin to read before the first is planned. Sources that keep up come first: reading an old source again must not delay
        the live ones meanwhile. Late sources share the rest of the budget, a quarter of it at least, and take turns.
        """
        whole = self.left
        for source in sources:
            source.read_ahead()
        for source in sources:
            if source.key not in late:
                yield source, max(self.left, 0)
        behind = [source for source in sources if source.key in late]
        first = turn % max(1, len(behind))
        end = min(0, self.left - max(1, whole // 4))
        for location, source in enumerate(behind[first:] + behind[:first]):
            spare = self.left - end
            yield source, max(1, spare // (len(behind) - location)) if spare > 0 else 0


class Plans:
    """The plans of one job, in a folder.

    Args:
        folder: the folder.
        sources: polled each time a batch is planned.
        limit: tells about how many bytes the next batch may read.
        is_due: whether results wait for a batch, with or without input.
        ahead: how far ahead of processing time the event times of live sources may be, in µs; None for any.
        on_trouble: called with the key of a source and the reason when it begins not to answer.
        on_polled: called with the polled sources, the positions before, and the keys of those that have no watermark yet, and of
            those that have not been read since they did not answer.
    """

    def __init__(
        self,
        folder: Path,
        sources: Sources,
        limit: Callable[[], int],
        is_due: Callable[[], bool],
        ahead: int | None = None,
        on_trouble: Callable[[str, str], None] = lambda *_: None,
        on_polled: Callable[
            [Sequence[Any], Mapping[str, Position], Collection[str], Collection[str]], None
        ] = lambda *_: None,
    ) -> None:
        self._folder, self._sources, self._limit, self._is_due = folder, sources, limit, is_due
        self._ahead, self._on_trouble, self._on_polled = ahead, on_trouble, on_polled
        self._troubles: dict[str, str] = {}
        disk.make_folder(folder)

    def next(self, start: int) -> int:
        """Return the number of the plan after `start`, making it if needed.

        Without new input it is `start`.
        """
        if self._path(start + 1).exists():
            return start + 1
        before = self.read(start) if start else BatchPlan(0, 0, (), {})
        plan = self._made(before)
        if plan is None:
            return start
        self._write(plan)
        return plan.number

    def read(self, number: int) -> BatchPlan:
        """Return a plan.

        Raises:
            Damaged: it is missing, or its checksum does not match.
        """
        path = self._path(number)
        try:
            content = _checked(path.read_bytes())
            splits = tuple(PlannedSplit(**split) for split in content["splits"])
            ended, behind, loading = (tuple(content.get(name, ())) for name in ("ended", "behind", "loading"))
            positions, latest, unread = content["positions"], content.get("latest"), content.get("unread", {})
            away = {key: (times, until) for key, (times, until) in content.get("away", {}).items()}
            if content["number"] != number:
                raise ValueError(f"it is plan {content['number']}")
            revision = content["revision"]
            return BatchPlan(number, revision, splits, positions, ended, latest, behind, loading, unread, away)
        except FileNotFoundError:
            report = f"plan {number} is missing: {self._name(number)}; the last one there is {self.last()}"
            raise Damaged(report, hint=RESTORE) from None
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(f"plan {number} is damaged: {self._name(number)}: {error}", hint=RESTORE) from None

    def postpone(
        self, plan: BatchPlan, sources: Collection[tuple[str, int]], partitions: Mapping[str, Collection[str]]
    ) -> BatchPlan:
        """Take out of a plan the splits of sources that do not answer.

        These rest for some time.

        Args:
            plan: the last plan.
            sources: their datasets and ordinals.
            partitions: of which they have splits, by their keys.
        """
        times = {key: plan.away.get(key, (0, 0.0))[0] + 1 for key in partitions}
        away = {key: (count, time.time() + min(LONGEST_REST, 2.0**count)) for key, count in times.items()}
        return self.take_out(replace(plan, away={**plan.away, **away}), sources, partitions)

    def take_out(
        self, plan: BatchPlan, sources: Collection[tuple[str, int]], partitions: Mapping[str, Collection[str]]
    ) -> BatchPlan:
        """Write a plan anew without the splits of some sources, which are planned again.

        Nothing of the plan may be stored.

        Args:
            plan: the last plan.
            sources: their datasets and ordinals.
            partitions: of which they have splits, by their keys.
        """
        before = self.read(plan.number - 1).positions if plan.number > 1 else {}
        positions = {key: position for key, position in plan.positions.items() if key not in partitions}
        positions |= {key: before[key] for key in partitions if key in before}
        unread = {key: sorted({*plan.unread.get(key, ()), *each}) for key, each in partitions.items()}
        changed = replace(
            plan,
            splits=tuple(each for each in plan.splits if each.is_replay or (each.dataset, each.source) not in sources),
            positions=positions,
            behind=(*plan.behind, *(key for key in partitions if key not in plan.behind)),
            unread={**plan.unread, **{key: each for key, each in unread.items() if each}},
        )
        self._write(changed)
        return changed

    def last(self) -> int:
        """Return the number of the last plan, 0 for none."""
        return max(self.numbers(), default=0)

    def numbers(self) -> list[int]:
        """Return the numbers of the existing plans, sorted."""
        return sorted(int(path.stem) for path in self._folder.glob("[0-9]*.json"))

    def check(self, number: int) -> None:
        """Check that batches can resume after a plan: it and its source positions exist.

        Raises:
            Damaged: one of them does not.
        """
        if not number:
            return
        positions = self.read(max(number, self.last())).positions
        for source in self._sources()[1]:
            source.check(positions.get(source.key))

    def forget(self, number: int, keep: int = 50) -> None:
        """Delete plans too old for a restart to need them."""
        old = self._path(number - keep)
        while old.exists():
            disk.remove(old)
            number -= 1
            old = self._path(number - keep)

    def _made(self, before: BatchPlan) -> BatchPlan | None:
        revision, sources = self._sources()
        positions, splits = dict(before.positions), list[PlannedSplit]()
        ended, behind = list[str](), list[str]()
        open_ones = []
        for source in sources:
            if source.key in before.ended and source.is_bounded:
                ended.append(source.key)
            else:
                open_ones.append(source)
        late = {each.key for each in open_ones if each.key in before.behind or each.key not in positions}
        loading = tuple(each.key for each in open_ones if _is_loading(each, before))
        budget = _Budget(self._limit())
        away = _away(open_ones, before)
        resting = _resting(away)
        for source, available in budget.shares(open_ones, late, before.number):
            share = 0 if source.key in resting else available
            has_more = source.is_loading  # asked first: rows read afterwards may be the last ones
            found, position = source.plan(positions.get(source.key), share) if share > 0 else ((), None)
            self._notice(source)
            size = sum(size for _, size in found)
            is_away = source.trouble and source.key in before.behind  # what it had more, it has still
            if share <= 0 or size >= share or has_more or source.is_loading or is_away:
                behind.append(source.key)
            if found:
                splits += [PlannedSplit(source.dataset, source.source, split, size) for split, size in found]
                positions[source.key] = position
                budget.left -= size
            elif share > 0 and source.has_ended:
                ended.append(source.key)
        self._on_polled(open_ones, before.positions, {*loading} & {*behind}, {*away})
        states = (set(ended), set(behind), loading), (set(before.ended), set(before.behind), before.loading)
        unread = _unread(open_ones, positions, before)
        is_new = splits or revision != before.revision or states[0] != states[1] or not all(unread.values())
        if not is_new and not self._is_due():
            return None
        latest = None if self._ahead is None else time.time_ns() // 1000 + self._ahead
        number, parts = before.number + 1, tuple(splits)
        return BatchPlan(number, revision, parts, positions, tuple(ended), latest, tuple(behind), loading, unread, away)

    def _notice(self, source: Plannable) -> None:
        """Report a source that has begun not to answer, or to answer again."""
        before = self._troubles.get(source.key, "")
        if bool(source.trouble) != bool(before):
            self._on_trouble(source.key, source.trouble or "it answers again")
        self._troubles[source.key] = source.trouble

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}.json"

    def _name(self, number: int) -> str:
        return f"{self._folder.name}/{self._path(number).name}"

    def _write(self, plan: BatchPlan) -> None:
        path = self._path(plan.number)
        content = json.dumps(asdict(plan), separators=(",", ":")).encode()
        disk.replace(path, b'{"crc":"%08x","plan":%b}' % (zlib.crc32(content), content))


def _unread(
    sources: Iterable[Plannable], positions: Mapping[str, Position], before: BatchPlan
) -> dict[str, Sequence[str]]:
    """Return the unread partitions of sources that have or had some."""
    found = {each.key: sorted(each.unread_partitions(positions.get(each.key))) for each in sources}
    return {key: parts for key, parts in found.items() if parts or before.unread.get(key)}


def _away(sources: Iterable[Plannable], before: BatchPlan) -> dict[str, tuple[int, float]]:
    """Return the sources that have not been read since they did not answer."""
    read = {(each.dataset, each.source) for each in before.splits if not each.is_replay}
    return {
        each.key: before.away[each.key]
        for each in sources
        if each.key in before.away and (each.dataset, each.source) not in read
    }


def _resting(away: Mapping[str, tuple[int, float]]) -> set[str]:
    """Return the sources that are not to be planned yet.

    A rest that ends later than it can has ended: the clock was set back.
    """
    now = time.time()
    return {key for key, (_, until) in away.items() if now < until <= now + LONGEST_REST}


def _is_loading(source: Plannable, before: BatchPlan) -> bool:
    """Return whether the first rows of a source, unordered, are still read.

    Some of them are behind the plan before.
    """
    was_loading = source.key in before.loading and source.key in before.behind
    return source.loads_unordered and (was_loading or source.key not in before.positions)


_HEAD = len(b'{"crc":"00000000","plan":')


def _checked(data: bytes) -> Any:
    """Return the content of a plan's file, after verifying its checksum.

    Files of umbel 0.1 have none.
    """
    if not data.startswith(b'{"crc":"'):
        return parse_stored(data)
    content = data[_HEAD:-1]
    if data != b'{"crc":"%08x","plan":%b}' % (zlib.crc32(content), content):
        raise ValueError("its checksum does not match")
    return parse_stored(content)
