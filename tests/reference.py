"""The naive reference: what aggregates and windows mean, in plain Python, a row at a time, from the whole history.

Nothing here is shared with the engine. Instants are whole microseconds since the epoch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

SECOND = 1_000_000


@dataclass(frozen=True)
class Change:
    """A row that comes (`weight` > 0) or goes.

    Args:
        at: when it takes effect.
        time: the row's own instant, which places it in windows.
        values: the row's columns.
        weight: how many times.
        seq: where it stood in its source.
    """

    at: int
    time: int
    values: dict[str, Any] = field(hash=False)
    weight: int = 1
    seq: int = 0


def live(changes: Iterable[Change]) -> list[Change]:
    """Return the rows that changes leave, each as often as it is there, oldest first."""
    rows: dict[tuple[Any, ...], int] = Counter()
    first: dict[tuple[Any, ...], Change] = {}
    for change in changes:
        identity = row_of(change)
        rows[identity] += change.weight
        first[identity] = change
    there = [(change, rows[identity]) for identity, change in first.items() if rows[identity] > 0]
    return [change for change, count in sorted(there, key=lambda each: order_of(each[0])) for _ in range(count)]


def row_of(change: Change) -> tuple[Any, ...]:
    """Return what tells the row of a change from others."""
    return (change.time, change.seq, *((name, hashable(change.values[name])) for name in sorted(change.values)))


def order_of(change: Change) -> tuple[Any, ...]:
    """Return by what rows are put in order: their instant, their place in the source, then their values."""
    return (change.time, change.seq, *(comparable(change.values[name]) for name in sorted(change.values)))


def hashable(value: Any) -> Any:
    """Return something that stands for a value and can be counted."""
    if isinstance(value, list | tuple):
        return tuple(map(hashable, value))
    return "NaN" if is_nan(value) else value


def is_nan(value: Any) -> bool:
    """Return whether a value is the float that does not equal itself."""
    return isinstance(value, float) and math.isnan(value)


def comparable(value: Any) -> Any:
    """Return something that compares: null comes first, NaN last."""
    if isinstance(value, list | tuple):
        return (True, [comparable(each) for each in value])
    return (value is not None, is_nan(value), 0.0 if is_nan(value) else value)


# ---- values ----------------------------------------------------------------------------------------------------------


def value(aggregate: Any, rows: Sequence[Change], now: int) -> Any:
    """Return the value of an aggregate over rows, oldest first, at an instant."""
    return _VALUES[type(aggregate).__name__](aggregate, rows, now)


def _of(aggregate: Any, rows: Sequence[Change], *, nulls: bool = False) -> list[Any]:
    found = [row.values[aggregate.of] for row in rows]
    return found if nulls else [each for each in found if each is not None]


def _count(aggregate: Any, rows: Sequence[Change], now: int) -> int:
    if aggregate.of is None:
        return len(rows)
    found = _of(aggregate, rows, nulls=not aggregate.dropnull)
    return len(set(map(hashable, found))) if aggregate.unique else len(found)


def _sum(found: Sequence[float]) -> float:
    odd = [each for each in found if not math.isfinite(each)]
    return sum(odd) if odd else math.fsum(found)


def _mean(found: Sequence[Any]) -> float:
    return _sum([float(each) for each in found]) / len(found)


def _stddev(found: Sequence[Any]) -> float:
    if not all(math.isfinite(each) for each in found):
        return math.nan
    middle = _mean(found)
    return math.sqrt(math.fsum((float(each) - middle) ** 2 for each in found) / len(found))


def _or_default(compute: Callable[[list[Any]], Any]) -> Callable[[Any, Sequence[Change], int], Any]:
    def evaluate(aggregate: Any, rows: Sequence[Change], now: int) -> Any:
        found = _of(aggregate, rows)
        return compute(found) if found else aggregate.default

    return evaluate


def _numbers(found: list[Any]) -> list[Any]:
    """Return values without NaN, unless there is nothing else."""
    return [each for each in found if not is_nan(each)] or found


def _quantile(aggregate: Any, rows: Sequence[Change], now: int) -> Any:
    found = sorted(map(float, _of(aggregate, rows)), key=comparable)
    return found[min(len(found) - 1, math.floor(aggregate.p * len(found)))] if found else aggregate.default


def _decayed(aggregate: Any, rows: Sequence[Change], now: int) -> float:
    half_life = {"s": 1, "m": 60, "h": 3600, "d": 86400}[aggregate.half_life[-1]] * float(aggregate.half_life[:-1])
    parts = {True: 0.0, False: 0.0}
    for row in rows:
        each = row.values[aggregate.of]
        if each is not None:
            age = now // SECOND - row.time // SECOND
            share = 2 ** (-age / half_life) if math.isfinite(each) else 1.0
            parts[not each < 0] += abs(float(each)) * share
    gain, loss = (0.0 if part < math.exp(-25) else part for part in (parts[True], parts[False]))
    return gain - loss


def _some(rows: Sequence[Change], aggregate: Any, *, newest: bool) -> list[Any]:
    """Return values in order: those of one instant and place by themselves, since nothing else is known of them."""
    ordered = sorted(rows, key=lambda row: (row.time, row.seq, comparable(row.values[aggregate.of])), reverse=newest)
    found = _of(aggregate, ordered, nulls=not aggregate.dropnull)
    if not aggregate.dedup:
        return found[: aggregate.limit]
    retained = {hashable(each): each for each in reversed(found)}
    order = dict.fromkeys(map(hashable, found))
    return [retained[each] for each in order][: aggregate.limit]


def _distinct(aggregate: Any, rows: Sequence[Change], now: int) -> list[Any]:
    different = {hashable(each): each for each in _of(aggregate, rows, nulls=not aggregate.dropnull)}
    return sorted(different.values(), key=comparable)


_VALUES: dict[str, Callable[[Any, Sequence[Change], int], Any]] = {
    "Count": _count,
    "Sum": lambda aggregate, rows, now: sum(_of(aggregate, rows)),
    "Average": _or_default(_mean),
    "Stddev": _or_default(_stddev),
    "Min": _or_default(lambda found: min(_numbers(found))),
    "Max": _or_default(lambda found: max(_numbers(found))),
    "Quantile": _quantile,
    "ExpDecaySum": _decayed,
    "LastK": lambda aggregate, rows, now: _some(rows, aggregate, newest=True),
    "FirstK": lambda aggregate, rows, now: _some(rows, aggregate, newest=False),
    "Distinct": _distinct,
}


# ---- continuous windows ----------------------------------------------------------------------------------------------


def continuous(
    aggregate: Any, changes: Sequence[Change], now: int, length: int | None, place: Callable[[int], int] = int
) -> Any:
    """Return the value at `now` over the window (None: without beginning) up to it.

    Args:
        place: where an instant counts as being, which tiles round.
    """
    begin = -(2**62) if length is None else now // SECOND * SECOND - length
    counted = [change for change in changes if change.at <= now and change.time <= now and place(change.time) >= begin]
    return value(aggregate, live(counted), now)


def is_found(changes: Sequence[Change], now: int) -> bool:
    """Return whether a key has ever had a row by `now`."""
    net: dict[tuple[int, int], int] = Counter()
    for change in changes:
        net[change.time, change.at] += change.weight
    return any(weight and max(instant) <= now for instant, weight in net.items())


def changed(
    changes: Sequence[Change], now: int, windows: Sequence[tuple[int | None, Callable[[int], int]]], *, is_keyed: bool
) -> int | None:
    """Return the last instant up to `now` at which rows came, were retracted, or left, in any window: (length, place)."""
    net: Counter[tuple[Any, ...]] = Counter()
    for change in changes:
        net[change.time, max(change.time, change.at), str(change.values)] += change.weight
    found: list[int] = []
    for length, place in windows:
        homes: dict[int, list[tuple[int, int]]] = {}
        for (time, at, _), weight in net.items():
            if weight or not is_keyed:  # what was retracted is still an instant of its tile
                homes.setdefault(place(at if is_keyed and length is None else time), []).append((at, weight))
        for home, effects in homes.items():
            leaves = 2**62 if length is None else (home + length) // SECOND * SECOND + SECOND
            seen = [(at, weight) for at, weight in effects if at < leaves]
            if sum(weight for _, weight in seen):
                found.append(leaves)
            elif not is_keyed:
                continue
            found += [at for at, _ in seen]
    if (
        is_keyed
    ):  # a row that takes effect when it has left its window already changes nothing but that its key is there
        found += sorted(at for (_, at, _), weight in net.items() if weight)[:1]
    return max((instant for instant in found if instant <= now), default=None)


def tiled(changes: Sequence[Change], grain: int, exact: int, length: int | None = None) -> Callable[[int], int]:
    """Return where tiles place instants: in a tile with more than `exact` different ones all are in the middle.

    Args:
        length: of the window, for tables: rows that take effect when their tile is leaving it do not count.
    """
    tiles: dict[int, set[int]] = {}
    for change in changes:
        known = tiles.setdefault(change.time // grain, set())
        if length is None or change.at < change.time // grain * grain + length:
            known.add(change.time)

    def place(instant: int) -> int:
        known = tiles[instant // grain]
        return min(known) + (max(known) - min(known)) // 2 if len(known) > exact else instant

    return place


# ---- discrete windows ------------------------------------------------------------------------------------------------


def hopping(
    aggregates: Sequence[Any], changes: Sequence[Change], length: int | None, stride: int, closed: int
) -> dict[int, list[Any]]:
    """Return the values of one key by the end of each closed window with rows, and of each first one without after it.

    Args:
        length: None for windows without beginning, whose results come out where rows came or went.
        closed: results come out up to this instant.
    """
    if length is None:
        ends = sorted({change.at // stride * stride + stride for change in changes})
        return {
            end: [value(each, live(c for c in changes if c.at < end), end) for each in aggregates]
            for end in ends
            if end <= closed
        }
    found: dict[int, list[Any]] = {}
    rows = live(changes)
    begins = {n * stride for row in rows for n in range((row.time - length) // stride + 1, row.time // stride + 2)}
    for begin in sorted(begins):
        inside = [row for row in rows if begin <= row.time < begin + length]
        before = [row for row in rows if begin - stride <= row.time < begin - stride + length]
        if (inside or before) and begin + length <= closed:
            found[begin + length] = [value(each, inside, begin + length) for each in aggregates]
    return found


def sessions(aggregates: Sequence[Any], changes: Sequence[Change], gap: int) -> dict[tuple[int, int], list[Any]]:
    """Return the values of one key by the [begin, end) of each session."""
    groups: list[list[Change]] = []
    for row in live(changes):
        if groups and row.time // SECOND <= (groups[-1][-1].time + gap) // SECOND:
            groups[-1].append(row)
        else:
            groups.append([row])
    return {(g[0].time, g[-1].time + 1): [value(each, g, g[-1].time) for each in aggregates] for g in groups}
