"""The naive reference of operators: each computes all changes of its result from all changes of its inputs, a row at a time.

Nothing here is shared with the engine. Instants are whole microseconds since the epoch; a window is a pair of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.reference import SECOND, Change, continuous, hashable, hopping, live, order_of, row_of, sessions

Values = dict[str, Any]
Group = tuple[Any, ...]
EVER = 2**62
"""An instant after all others."""


@dataclass(frozen=True)
class Flow:
    """All changes of a dataset, or of a step of a pipeline.

    Args:
        changes: the net ones.
        keys: the key columns.
    """

    changes: list[Change] = field(default_factory=list)
    keys: tuple[str, ...] = ()


def net(changes: Iterable[Change]) -> list[Change]:
    """Sum the weights of equal changes; drop what cancels out."""
    weights: Counter[tuple[Any, ...]] = Counter()
    known: dict[tuple[Any, ...], Change] = {}
    for each in changes:
        identity = (each.at, row_of(each))
        weights[identity] += each.weight
        known[identity] = each
    return [replace(known[identity], weight=weight) for identity, weight in weights.items() if weight]


def grouped(changes: Iterable[Change], keys: Sequence[str]) -> dict[Group, list[Change]]:
    """Return changes by the values of some columns."""
    groups: dict[Group, list[Change]] = defaultdict(list)
    for each in changes:
        groups[key_of(each, keys)].append(each)
    return groups


def key_of(change: Change, columns: Sequence[str]) -> Group:
    """Return the values of some columns as a key."""
    return tuple(hashable(change.values[name]) for name in columns)


def keys_of(group: Sequence[Change], columns: Sequence[str]) -> Values:
    """Return the key of a group as rows have it: NaN is a number there."""
    return {name: group[0].values[name] for name in columns}


def last_seen(change: Change) -> tuple[Any, ...]:
    """Return by what the last one seen of some rows is known: its place in the source, then its values."""
    return order_of(change)[1:]


# ---- tables ----------------------------------------------------------------------------------------------------------


def versions(starts: Mapping[int, Change | None]) -> list[Change]:
    """Return the changes of one key whose row is another from each instant on; None where it has none."""
    found = []
    instants = sorted(starts)
    for instant, following in zip(instants, [*instants[1:], None], strict=False):
        row = starts[instant]
        if row is not None:
            found.append(replace(row, at=instant, weight=1))
            if following is not None:
                found.append(replace(row, at=following, weight=-1))
    return found


def upserted(rows: Iterable[Change], keys: tuple[str, ...]) -> Flow:
    """Return the changes of a table from its rows; a weight below 0 deletes. Of one key and instant the last in its source wins.

    A change without values empties the table: it deletes what its source had before it, which does not begin later. Other weights
    than ±1 replace what the key had before in the source and begins later.
    """
    changes, rows = [], list(rows)
    emptied = [replace(row, weight=-1) for row in rows if not row.values]
    for known in grouped((row for row in rows if row.values), keys).values():
        mine = [*known, *emptied]
        starts: dict[int, Change | None] = {}
        for row in sorted(mine, key=lambda row: row.seq):
            if abs(row.weight) != 1:
                starts = {at: other for at, other in starts.items() if at <= row.at}
            starts[row.at] = row if row.weight > 0 else None
        changes += versions(starts)
    return Flow(changes, keys)


def current(flow: Flow, key: Group, now: int) -> Change | None:
    """Return the row a key has at an instant."""
    mine = grouped(flow.changes, flow.keys).get(key, [])
    rows = live(change for change in mine if change.at <= now)
    assert len(rows) <= 1, f"a key with {len(rows)} rows at {now}: {rows}"
    return rows[0] if rows else None


def lifetimes(changes: Sequence[Change]) -> list[tuple[Change, int, int | None]]:
    """Return each row with the instants at which it begins and ends."""
    ends = {row_of(each): each.at for each in changes if each.weight < 0}
    return [(each, each.at, ends.get(row_of(each))) for each in changes if each.weight > 0]


# ---- row-wise --------------------------------------------------------------------------------------------------------


def each_row(flow: Flow, function: Callable[[Values, int], Iterable[Values]], keys: tuple[str, ...] = ()) -> Flow:
    """Return what a function makes of the values and instant of each row."""
    changes = [replace(each, values=made) for each in flow.changes for made in function(each.values, each.time)]
    return Flow(net(changes), keys or flow.keys)


def exploded(columns: Sequence[str]) -> Callable[[Values, int], Iterable[Values]]:
    """Return what makes a row of each element of some lists, side by side."""

    def explode(values: Values, time: int) -> Iterable[Values]:
        lists = [values[name] or [None] for name in columns]
        return [{**values, **dict(zip(columns, row, strict=True))} for row in zip(*lists, strict=True)]

    return explode


def union(flows: Iterable[Flow]) -> Flow:
    """Return the rows of all."""
    return Flow(net(change for flow in flows for change in flow.changes))


def changelog(flow: Flow, marker: str, *, marks_deletes: bool) -> Flow:
    """Return a row for every beginning and every end of a row."""
    rows = []
    for each in flow.changes:
        values = {**each.values, marker: (each.weight < 0) == marks_deletes}
        rows.append(Change(each.at, each.at, values, abs(each.weight), each.seq))
    return Flow(net(rows))


# ---- choices ---------------------------------------------------------------------------------------------------------


def latest(flow: Flow, keys: tuple[str, ...]) -> Flow:
    """Let each row be its key's from its instant on."""
    changes = []
    for mine in grouped(live(flow.changes), keys).values():
        changes += versions({row.time: row for row in sorted(mine, key=last_seen)})
    return Flow(changes, keys)


def first(flow: Flow, keys: tuple[str, ...]) -> Flow:
    """Return the oldest row of each key."""
    groups = grouped(live(flow.changes), keys).values()
    oldest = (min(mine, key=lambda row: (row.time, last_seen(row))) for mine in groups)
    return Flow([replace(row, weight=1) for row in oldest], keys)


def dedup(flow: Flow, by: Sequence[str], bucket: int | None = None, gap: int | None = None) -> Flow:
    """Return the last of the rows equal in `by` and of one instant, one bucket, or less than a gap apart."""
    changes = []
    for mine in grouped(live(flow.changes), by).values():
        rows = sorted(mine, key=lambda row: (row.time, last_seen(row)))
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            if following is None or _apart(row.time, following.time, bucket, gap):
                changes.append(replace(row, weight=1))
    return Flow(changes)


def _apart(one: int, other: int, bucket: int | None, gap: int | None) -> bool:
    if bucket is not None:
        return one // bucket != other // bucket
    return other - one >= gap if gap is not None else one != other


# ---- joins -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Match:
    """How rows of two sides belong together.

    Args:
        left_on: the left columns, in the order of the right keys.
        fields: the right columns of the result.
        timestamp: the name of the right row's own instant.
        inner: whether left rows without match are dropped.
        back: how old the right row may be; None for any age.
        ahead: how much later the right row may begin.
    """

    left_on: tuple[str, ...]
    fields: tuple[str, ...]
    timestamp: str
    inner: bool
    back: int | None = None
    ahead: int = 0

    def joined(self, left: Change, right: Change | None) -> Values:
        """Return the values of both."""
        found = {self.timestamp: right.time, **right.values} if right else dict.fromkeys(self.fields)
        return {**left.values, **{name: found[name] for name in self.fields}}


def as_of(left: Flow, right: Flow, match: Match) -> Flow:
    """Join each row with the right row of its own instant."""
    changes = []
    for each in left.changes:
        row = current(right, key_of(each, match.left_on), each.time + match.ahead)
        if row is not None and match.back is not None and row.time < each.time - match.back:
            row = None
        if row is not None or not match.inner:
            changes.append(replace(each, values=match.joined(each, row)))
    return Flow(net(changes))


def overlaps(left: Flow, right: Flow, match: Match) -> Flow:
    """Join the rows of two tables for as long as both are there: instant by instant at which anything changes."""
    changes = []
    instants = sorted({change.at for flow in (left, right) for change in flow.changes})
    for row, begin, end in lifetimes(left.changes):
        key = key_of(row, match.left_on)
        inside = [begin, *(at for at in instants if begin < at and (end is None or at < end))]
        report: dict[int, Change | None] = {}
        before: Any = ()
        for at in inside:
            other = current(right, key, at)
            if other != before:
                report[at] = _overlap(row, other, at, match)
            before = other
        if end is not None:
            report[end] = None
        changes += versions(report)
    return Flow(net(changes), left.keys)


def _overlap(row: Change, other: Change | None, at: int, match: Match) -> Change | None:
    if other is None and match.inner:
        return None
    return replace(row, time=at, at=at, values=match.joined(row, other))


# ---- aggregates ------------------------------------------------------------------------------------------------------


def along(flow: Flow, column: str) -> Flow:
    """Return rows placed in time by a column; one that ended is as if it had never been."""
    placed = (replace(each, at=each.values[column], time=each.values[column]) for each in flow.changes)
    return Flow(net(placed), flow.keys)


def newest_time(flow: Flow) -> int | None:
    """Return the largest instant among rows."""
    return max((each.time for each in flow.changes if each.weight > 0), default=None)


def aggregated(flow: Flow, keys: tuple[str, ...], aggregates: Sequence[Any], seen: int) -> Flow:
    """Return the results of discrete windows that the newest row, at `seen`, has closed.

    Args:
        aggregates: with window and name.
    """
    lookback = max(each.window.lookback_us for each in aggregates)
    changes = []
    for mine in grouped(flow.changes, keys).values():
        values = keys_of(mine, keys)
        rows = _rows(aggregates, mine, seen // SECOND * SECOND - lookback)
        changes += versions({end: Change(end, end, {**values, **results}) for end, results in rows.items()})
    return Flow(changes, keys)


def slid(flow: Flow, keys: tuple[str, ...], aggregates: Sequence[Any], seen: int) -> Flow:
    """Return the emitted results of continuous windows: at each instant before `seen` at which a row enters or leaves."""
    lengths = {each.window.duration_us for each in aggregates} - {None}
    changes = []
    for mine in grouped(flow.changes, keys).values():
        values = keys_of(mine, keys)
        left = {max(((each.time + length) // SECOND + 1) * SECOND, each.at) for each in mine for length in lengths}
        instants = sorted(at for at in {*(max(each.at, each.time) for each in mine), *left} if at < seen)
        rows = {
            at: {each.into_field: continuous(each, mine, at, each.window.duration_us) for each in aggregates}
            for at in instants
        }
        changes += versions({at: Change(at, at, {**values, **results}) for at, results in rows.items()})
    return Flow(changes, keys)


def _rows(aggregates: Sequence[Any], changes: list[Change], closed: int) -> dict[int, Values]:
    """Return the row of one key by the instant it begins: what each window emitted last, or the value of nothing."""
    report = {
        window: hopping(
            [each for each in aggregates if each.window == window],
            changes,
            window.duration_us,
            window.stride_us,
            closed,
        )
        for window in {each.window for each in aggregates}
    }
    rows = {}
    for end in sorted({end for results in report.values() for end in results}):
        rows[end] = {}
        for window, results in report.items():
            mine = [each for each in aggregates if each.window == window]
            newest = max((each for each in results if each <= end), default=None)
            values = results[newest] if newest is not None else [empty(each) for each in mine]
            rows[end] |= dict(zip((each.into_field for each in mine), values, strict=True))
    return rows


def empty(aggregate: Any) -> Any:
    """Return the value of an aggregate over nothing."""
    nothing = {"Count": 0, "Sum": 0, "LastK": [], "FirstK": [], "Distinct": [], "ExpDecaySum": 0.0}
    return nothing.get(type(aggregate).__name__, getattr(aggregate, "default", None))


def by_window(flow: Flow, keys: tuple[str, ...], aggregates: Sequence[Any], window: Any, seen: int) -> Flow:
    """Return the same with the window as a key: each result stays."""
    changes = []
    for mine in grouped(flow.changes, keys).values():
        closed = seen // SECOND * SECOND - window.lookback_us
        for end, results in hopping(aggregates, mine, window.duration_us, window.stride_us, closed).items():
            changes.append(_spanned(keys_of(mine, keys), aggregates, (end - window.duration_us, end), results))
    return Flow(changes, (*keys, "window"))


def by_session(flow: Flow, keys: tuple[str, ...], aggregates: Sequence[Any], gap: int, closed: int = EVER) -> Flow:
    """Return the results of the sessions of each key that no row up to `closed` can go on with."""
    changes = []
    for mine in grouped(flow.changes, keys).values():
        for span, results in sessions(aggregates, mine, gap).items():
            if (span[1] - 1 + gap) // SECOND * SECOND + SECOND <= closed // SECOND * SECOND:
                changes.append(_spanned(keys_of(mine, keys), aggregates, span, results))
    return Flow(changes, (*keys, "window"))


def _spanned(keys: Values, aggregates: Sequence[Any], span: tuple[int, int], results: list[Any]) -> Change:
    named = dict(zip((each.into_field for each in aggregates), results, strict=True))
    return Change(span[1], span[1], {**keys, "window": span, **named})
