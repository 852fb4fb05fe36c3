"""Corrections: logged answers beside those that the same queries get today.

A query answers from what has arrived by then. Rows that arrive later correct its answer, which the offline answer as of the same
instant shows.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from umbel.client.logged import FIXED, Logged
from umbel.client.schemas import decoded
from umbel.errors import InvalidValue, UnknownName, did_you_mean
from umbel.query.rows import series_of
from umbel.types.dtypes import DType

if TYPE_CHECKING:
    import pandas as pd

AT_ONCE = 10_000
"""Logged rows that are queried offline at once."""
TOLERANCE, SMALLEST = 1e-9, 1e-12
"""Relative and absolute differences up to which floats are equal: sums depend on the order of their rows in the last digits."""

Ask = Callable[[Sequence[str], "pd.DataFrame"], Mapping[str, Sequence[Any]]]
"""Returns the offline values of features for a frame of inputs and `timestamp`."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """The logged answers that would be others today.

    Args:
        features: a row for each feature: `feature`, `answers` (how many were compared), `corrected` (how many of them would be
            others), `share` of these; for numbers `mean_change` and `largest_change`, absolute, of the corrected ones.
        answers: a row for each corrected answer, by time: `timestamp`, `workflow`, the inputs, `feature`, `served`, `corrected`;
            for numbers `change`, the corrected minus the served value.
        skipped: logged rows that were not compared: their queries had other inputs.
    """

    features: pd.DataFrame
    answers: pd.DataFrame
    skipped: int


def compare(logged: Logged, inputs: Sequence[str], outputs: Sequence[str], ask: Ask) -> Corrections:
    """Compare logged answers with those of today.

    Args:
        logged: the answers.
        inputs: the features with which they were queried, in any order; rows of queries with others are skipped.
        outputs: the features and featuresets to compare; all that were logged when empty.
        ask: answers offline queries.

    Raises:
        UnknownName: an input or output is not committed.
        InvalidValue: values of a feature have another type than today.
    """
    import pandas as pd

    _check_known([*inputs, *outputs], logged.types)
    rows = logged.rows()
    compared = [row for row in rows if _is_made_with(inputs, row)]
    groups, counts = defaultdict[tuple[str, ...], list[dict[str, Any]]](list), Counter[str]()
    for row in compared:
        features = [name for name in row if name not in FIXED and name not in inputs and _is_among(name, outputs)]
        known = tuple(name for name in features if name in logged.types)
        groups[known].append(row)
        for name in features:
            counts[name] += name in logged.types
    found = list[dict[str, Any]]()
    for known, group in groups.items():
        for start in range(0, len(group) if known else 0, AT_ONCE):
            found += _corrected(group[start : start + AT_ONCE], inputs, known, logged.types, ask)
    names = ["timestamp", "workflow", *inputs, "feature", "served", "corrected", "change"]
    columns = {name: [each[name] for each in found] for name in names}
    values = {name: pd.Series(columns[name], dtype=object) for name in ("served", "corrected")}  # ints beside nulls
    answers = pd.DataFrame(columns | values).sort_values("timestamp", kind="stable", ignore_index=True)
    return Corrections(_totals(counts, found), answers, len(rows) - len(compared))


def _check_known(names: Sequence[str], types: Mapping[str, DType]) -> None:
    known = {*types, *(name.partition(".")[0] for name in types)}
    for name in names:
        if name not in known:
            kind = "feature" if "." in name else "featureset"
            raise UnknownName(f"there is no {kind} '{name}'{did_you_mean(name, known)}", hint="commit it first")


def _is_made_with(inputs: Sequence[str], row: Mapping[str, Any]) -> bool:
    """Return whether a row is of a query with these inputs.

    They come first in a row, in the order of the query.
    """
    first = list(row)[len(FIXED) : len(FIXED) + len(inputs)]
    return sorted(first) == sorted(inputs)


def _is_among(name: str, outputs: Sequence[str]) -> bool:
    return not outputs or name in outputs or name.partition(".")[0] in outputs


def _corrected(
    rows: Sequence[Mapping[str, Any]],
    inputs: Sequence[str],
    features: Sequence[str],
    types: Mapping[str, DType],
    ask: Ask,
) -> Iterator[dict[str, Any]]:
    """Yield the corrected answers of some rows that have the same features."""
    columns = {"timestamp": FIXED["timestamp"], **{name: types[name] for name in inputs}}
    requested = decoded({name: [row[name] for row in rows] for name in columns}, columns).to_pandas()
    today = ask(features, requested)
    for name in features:
        for row, at, served, now in zip(
            rows, requested["timestamp"], _served(name, rows, types), today[name], strict=True
        ):
            if not _is_same(served, now):
                about = {each: row[each] for each in ("workflow", *inputs)}
                values = {"served": served, "corrected": now, "change": _change(served, now)}
                yield {"timestamp": at, **about, "feature": name, **values}


def _served(name: str, rows: Sequence[Mapping[str, Any]], types: Mapping[str, DType]) -> Sequence[Any]:
    """Return the logged values of a feature."""
    try:
        (column,) = decoded({name: [row[name] for row in rows]}, types).columns.values()
    except InvalidValue as error:
        hint = "compare the answers since the commit that changed its type: since=…"
        raise InvalidValue(
            f"logged values of {name} have another type than it has today: {error}", hint=hint
        ) from error
    return series_of(column).to_list()


def _is_same(served: Any, now: Any) -> bool:
    """Return whether two values are equal but for the last digits of floats."""
    if isinstance(served, float) and isinstance(now, float):
        return math.isclose(served, now, rel_tol=TOLERANCE, abs_tol=SMALLEST) or (
            math.isnan(served) and math.isnan(now)
        )
    if isinstance(served, list) and isinstance(now, list):
        return len(served) == len(now) and all(map(_is_same, served, now))
    if isinstance(served, dict) and isinstance(now, dict):
        return served.keys() == now.keys() and all(_is_same(served[key], now[key]) for key in served)
    return bool(served == now)


def _change(served: Any, now: Any) -> float:
    """Return the difference of two numbers, NaN for other values."""
    are_numbers = all(isinstance(each, int | float | Decimal) and not isinstance(each, bool) for each in (served, now))
    return float(now) - float(served) if are_numbers else math.nan


def _totals(counts: Mapping[str, int], found: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the summary of each feature, the most corrected ones first."""
    import pandas as pd

    changes = defaultdict[str, list[float]](list)
    for each in found:
        changes[each["feature"]].append(abs(each["change"]))
    rows = [(name, count, len(changes[name]), *_sizes(changes[name])) for name, count in counts.items()]
    names = ["feature", "answers", "corrected", "mean_change", "largest_change"]
    totals = pd.DataFrame(rows, columns=names)
    totals.insert(3, "share", totals["corrected"] / totals["answers"].where(totals["answers"] > 0))
    return totals.sort_values("corrected", ascending=False, kind="stable", ignore_index=True)


def _sizes(changes: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the largest of the changes that are numbers."""
    numbers = [each for each in changes if not math.isnan(each)]
    return (math.fsum(numbers) / len(numbers), max(numbers)) if numbers else (math.nan, math.nan)
