"""The client's methods that trace values: to tiles, rows and positions in sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from umbel.client.names import dataset_name, names_of
from umbel.client.transport import FeatureQuery, TraceRequest, Transport
from umbel.errors import InvalidType, InvalidValue
from umbel.query.columns import cast
from umbel.query.resolve import name_of
from umbel.query.trace import COMPUTED, JOINED, MOST_SHOWN, SHOWN
from umbel.types.dtypes import Datetime

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Trace:
    """The tiles and rows that values are made of.

    `str()` of it is a report.

    Args:
        at: the instant of the answer, as text.
        values: the features by name; empty for the row of a dataset.
        lookups: the looked-up rows, each with its `dataset`, `keys`, `at`, `found` and `values`. `tiles` is about continuous
            windows: the spans (`first`, `last`), numbers of `rows` and `values` of the tiles of a `window`, and
            `is_cut`: whether the instant lies in the tile, of which then the rows up to it count. `rows` are lists of
            changes, with `data`, and for each the instant `at` which it takes effect, its `weight` (−1 for a retraction), `batch`
            (the micro-batch in which it arrived) and `source` (its positions). `count` is the whole number of rows or tiles in
            a list. `computed` and `joined` are datasets upstream whose rows are not followed.
    """

    at: str
    values: Mapping[str, Any]
    lookups: Sequence[Mapping[str, Any]]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"as of {self.at}"
        for name, value in self.values.items():
            yield f"{name} = {value}"
        if not self.lookups:
            yield "no dataset was looked up: the values are inputs, defaults, or computed from these"
        for each in self.lookups:
            yield ""
            yield from _described(each, self.at)


class TraceMethods:
    """The methods of a client that trace values."""

    _transport: Transport
    _branch: str

    def trace(
        self,
        outputs: Sequence[Any],
        inputs: Mapping[Any, Any],
        at: datetime | str | None = None,
        rows: int = SHOWN,
    ) -> Trace:
        """Query features for one row, and return what their values are made of.

        Args:
            outputs: features and featuresets.
            inputs: a value for each input feature.
            at: the instant to answer for; now when None.
            rows: the largest number of rows, and of tiles, that a list has: the newest.

        Raises:
            UmbelError: as of `query`.
        """
        if not isinstance(inputs, Mapping):
            raise InvalidType(f"inputs must be a mapping, got {inputs!r:.80}", hint='{"User.user": "ada"}')
        values = {name_of(feature): value for feature, value in inputs.items()}
        query = FeatureQuery([*values], names_of(outputs, "outputs"), {}, "default")
        return self._traced(query, "", values, at, rows)

    def trace_row(
        self, dataset: Any, keys: Mapping[str, Any], at: datetime | str | None = None, rows: int = SHOWN
    ) -> Trace:
        """Look up the row of one key, and return what it is made of.

        Args:
            dataset: a dataset or its name.
            keys: a value for each key field.
            at: the instant to answer for, for the offline index; now when None.
            rows: the largest number of rows, and of tiles, that a list has: the newest.

        Raises:
            UmbelError: as of `lookup`.
        """
        if not isinstance(keys, Mapping):
            raise InvalidType(f"keys must be a mapping, got {keys!r:.80}", hint='{"user": "ada"}')
        return self._traced(None, dataset_name(dataset), keys, at, rows)

    def _traced(
        self, query: FeatureQuery | None, dataset: str, values: Mapping[str, Any], at: datetime | str | None, rows: int
    ) -> Trace:
        import pandas as pd

        if type(rows) is not int or not 0 <= rows <= MOST_SHOWN:
            raise InvalidValue(f"rows must be a number from 0 to {MOST_SHOWN}, got {rows!r:.80}", hint=f"rows={SHOWN}")
        row = pd.DataFrame({name: pd.Series([value], dtype=object) for name, value in values.items()}, index=[0])
        instant: datetime | None = None if at is None else cast(pd.Series([at], dtype=object), Datetime(), "at")[0]
        found = self._transport.trace(self._branch, TraceRequest(query, dataset, row, instant, rows))
        return Trace(**found)


def _described(lookup: Mapping[str, Any], instant: str) -> Iterator[str]:
    keys = ", ".join(f"{name}={value!r}" for name, value in lookup["keys"].items())
    values = ", ".join(f"{name}={value}" for name, value in lookup["values"].items())
    at = "" if lookup["at"] == instant else f" as of {lookup['at']}"
    yield f"{lookup['dataset']} {keys}{at}: {values if lookup['found'] else 'not found'}"
    for tiles in lookup["tiles"]:
        columns = {name: tiles[name] for name in ("first", "last", "rows")} | tiles["values"]
        if any(tiles["is_cut"]):
            columns[""] = ["up to the instant" if each else "" for each in tiles["is_cut"]]
        yield from _table(f"window {tiles['window']}: {_number(tiles['count'], 'tile')}", columns, tiles["count"])
    for rows in lookup["rows"]:
        others = {"in effect": rows["at"], "weight": rows["weight"]}
        if any(each is not None for each in rows["batch"]):
            others["batch"] = ["" if each is None else each for each in rows["batch"]]
        others["source"] = [" or ".join(each) for each in rows["source"]]
        yield from _table(f"{_number(rows['count'], 'row')} of {rows['of']}", {**rows["data"], **others}, rows["count"])
    for name in lookup[COMPUTED]:
        yield f"  rows of {name} are aggregates: trace them there"
    for name in lookup[JOINED]:
        yield f"  joined with {name}: trace its row there"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _table(title: str, columns: Mapping[str, Sequence[Any]], count: int) -> Iterator[str]:
    import pandas as pd

    frame = pd.DataFrame({name: pd.Series(list(values), dtype=object) for name, values in columns.items()})
    newest = f", the newest {len(frame)}" if len(frame) < count else ""
    yield f"  {title}{newest}"
    if len(frame):
        yield from (f"    {line}" for line in frame.to_string(index=False, max_colwidth=80).splitlines())
