"""Tables of each rule for tests of shards, and a model of them in dictionaries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from umbel.state.keys import encode_keys
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.rules import KEY, CollectRule, ReplaceRule, SumRule, TableSchema
from umbel.state.runs.shard import Shard, ShardOptions
from umbel.state.runs.views import ShardSnapshot, ShardTransaction

A, B = "a" * 16, "b" * 16
REPLACED, SUMMED, COLLECTED = f"{A}/versions", f"{A}/tiles", f"{B}/waiting"
TABLES = (REPLACED, SUMMED, COLLECTED)
ZERO = datetime(2024, 1, 1, tzinfo=UTC)
TIME = pl.Datetime("us", "UTC")
DAY = timedelta(days=1)
SCHEMAS = {
    REPLACED: TableSchema({"text": pl.String}, ReplaceRule(), {"_time": TIME}, expires=pl.col("_time") + DAY),
    SUMMED: TableSchema(
        {"n": pl.Int64, "top": pl.Int64},
        SumRule({"n": pl.col("n").sum(), "top": pl.col("top").max()}),
        {"_time": TIME},
        expires=pl.col("_time") + DAY,
    ),
    COLLECTED: TableSchema({"text": pl.String}, CollectRule(), {"_time": TIME}, expires=pl.col("_time") + DAY),
}
SMALL = ShardOptions(journal_bytes=3000, flush_bytes=1, part_rows=7, fan=2)

Row = tuple[int, int, object]
"""Key, hours after `ZERO`, and a text or a number."""


def opened(folder: Path, options: ShardOptions = SMALL) -> Shard:
    return Shard(LocalFiles(folder), SCHEMAS, options)


def keys_of(numbers: Iterable[int]) -> pl.Series:
    return encode_keys(pl.DataFrame({"k": pl.Series(list(numbers), dtype=pl.Int64)}))


def frame(table: str, rows: list[Row], weight: int = 1) -> pl.DataFrame:
    """Return rows as a frame of a table."""
    times = pl.Series("_time", [ZERO + timedelta(hours=hour) for _, hour, _ in rows], dtype=TIME)
    found = pl.DataFrame([keys_of(key for key, _, _ in rows).alias(KEY), times])
    values = [value for _, _, value in rows]
    if table == SUMMED:
        numbers = pl.Series("n", values, dtype=pl.Int64)
        return found.with_columns(numbers, numbers.alias("top"))
    found = found.with_columns(pl.Series("text", values, dtype=pl.String))
    return found.with_columns(pl.lit(weight, pl.Int64).alias("_weight")) if table == COLLECTED else found


def write(tx: ShardTransaction, table: str, rows: list[Row], removed: list[tuple[int, int]] = []) -> None:  # noqa: B006
    """Write rows; of a replaced table remove addresses, of a collected one take back the rows at them."""
    if table == REPLACED:
        touched = [*((key, hour, "") for key, hour in removed), *rows]
        tx.replace(table, frame(table, touched), frame(table, rows))
    else:
        tx.append(table, frame(table, rows))
        if table == COLLECTED and removed:
            tx.append(table, frame(table, [(key, hour, "x") for key, hour in removed], -1))


class Model:
    """The rows of the tables, in dictionaries."""

    def __init__(self) -> None:
        self.replaced: dict[tuple[int, int], list[object]] = {}
        self.summed: dict[tuple[int, int], tuple[int, int]] = {}
        self.collected: dict[tuple[int, int], Counter[object]] = defaultdict(Counter)
        self.horizon = -1000

    def copy(self) -> Model:
        found = Model()
        found.replaced = {at: list(values) for at, values in self.replaced.items()}
        found.summed = dict(self.summed)
        found.collected = defaultdict(Counter, {at: Counter(values) for at, values in self.collected.items()})
        found.horizon = self.horizon
        return found

    def write(self, table: str, rows: list[Row], removed: list[tuple[int, int]]) -> None:
        if table == REPLACED:
            for at in [*removed, *((key, hour) for key, hour, _ in rows)]:
                self.replaced.pop(at, None)
            for key, hour, value in rows:
                self.replaced.setdefault((key, hour), []).append(value)
        for key, hour, value in rows:
            if table == SUMMED:
                assert isinstance(value, int)
                n, top = self.summed.get((key, hour), (0, -(10**9)))
                self.summed[key, hour] = (n + value, max(top, value))
            if table == COLLECTED:
                self.collected[key, hour][value] += 1
        if table == COLLECTED:
            for key, hour in removed:
                self.collected[key, hour]["x"] -= 1

    def rows(self, table: str) -> list[tuple[object, ...]]:
        """Return what a lookup of all keys finds."""
        if table == REPLACED:
            found = [(*at, value) for at, values in self.replaced.items() for value in values]
            return sorted((row for row in found if row[1] + 24 > self.horizon), key=lambda row: row[:2])
        if table == SUMMED:
            return sorted((*at, *values) for at, values in self.summed.items() if at[1] + 24 > self.horizon)
        collected = [
            (*at, value, weight) for at, values in self.collected.items() for value, weight in values.items() if weight
        ]
        return sorted((row for row in collected if row[1] + 24 > self.horizon), key=repr)


def found(snapshot: ShardSnapshot, table: str, keys: Iterable[int] = range(30)) -> list[tuple[object, ...]]:
    """Return what a lookup of keys finds, as the model has it."""
    numbers = list(keys)
    rows = snapshot.lookup(table, keys_of(numbers))
    return _as_model(table, rows.with_columns(pl.col("_key_id").replace_strict(range(len(numbers)), numbers)))


def scanned(snapshot: ShardSnapshot, table: str) -> list[tuple[object, ...]]:
    """Return what a scan of a table finds, as the model has it."""
    names = dict(zip(keys_of(range(30)).to_list(), range(30), strict=True))
    pieces = [
        piece.with_columns(pl.Series("_key", [names[key] for key in piece["_key"]], dtype=pl.Int64))
        for piece in snapshot.scan(table, 5)
    ]
    rows = _as_model(table, pl.concat(pieces)) if pieces else []
    return rows if table == COLLECTED else sorted(rows, key=lambda row: (row[0], row[1]))  # type: ignore[arg-type]


def _as_model(table: str, rows: pl.DataFrame) -> list[tuple[object, ...]]:
    hours = rows.with_columns((pl.col("_time") - ZERO).dt.total_hours()).rows()
    return sorted(hours, key=repr) if table == COLLECTED else hours
