"""Running one aggregation over batches of changes, as a job would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from tests.reference import Change
from umbel.changes.versions import consolidate
from umbel.errors import InvalidValue
from umbel.operators.aggregate import aggregate
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Clock
from umbel.state.keys import encode_keys
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.state.tables import State
from umbel.types import dtypes
from umbel.types.schema import Schema
from umbel.windowing.tile_writes import TileWriter

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INSTANT = pl.Datetime("us", "UTC")
COLUMNS = (
    ("x", dtypes.Optional(dtypes.Int())),
    ("f", dtypes.Optional(dtypes.Float())),
    ("d", dtypes.Optional(dtypes.Decimal(2))),
    ("s", dtypes.Optional(dtypes.Str())),
    ("g", dtypes.Optional(dtypes.Float())),
    ("day", dtypes.Optional(dtypes.Date())),
    ("l", dtypes.Optional(dtypes.List(dtypes.Int()))),
)
STREAM = Schema((), (("k", dtypes.Int()), *COLUMNS), "t")
TABLE = Schema((("id", dtypes.Int()),), (("k", dtypes.Int()), *COLUMNS), "t")


def instant(micros: int) -> datetime:
    """Return the datetime of microseconds since the epoch."""
    return EPOCH + timedelta(microseconds=micros)


def micros(at: datetime) -> int:
    """Return the microseconds since the epoch of a datetime."""
    return (at - EPOCH) // timedelta(microseconds=1)


def aggregation(*aggregates: Any, keyed: bool = False, appends: bool = True, **options: Any) -> Any:
    """Return an aggregation by `k` of a stream, or of a table keyed by `id`; aggregates are named a0, a1, …"""
    leaf = Leaf(dataset="E", version=1, columns=TABLE if keyed else STREAM, appends=appends and not keyed)
    named = tuple(each if each.into_field else each.named(f"a{number}") for number, each in enumerate(aggregates))
    return aggregate(parents=(leaf,), keys=("k",), aggregates=named, **options)


def frame(changes: Iterable[tuple[int, Change]], schema: Schema = STREAM) -> pl.DataFrame:
    """Return changes of keys as the frame an operator gets."""
    rows = [
        {
            **dict.fromkeys(schema.names),
            "k": key,
            "id": change.seq,
            **change.values,
            "t": instant(change.time),
            "_at": instant(change.at),
            "_weight": change.weight,
            "_seq": change.seq,
        }
        for key, change in changes
    ]
    return pl.DataFrame(rows, schema=schema.changes(), orient="row")


class Job:
    """An aggregation that is fed batch by batch.

    Args:
        operator: what runs.
        combine: whether rows are combined before the step.
    """

    def __init__(self, operator: Any, *, combine: bool = True) -> None:
        self.operator, self._combine = operator, combine
        self.store = MemoryStore(shards=1)
        self._batch = 0
        self._stream_time: datetime | None = None
        self.emitted: list[pl.DataFrame] = []

    def feed(self, rows: pl.DataFrame, watermark: datetime | None = None, parts: int = 1) -> None:
        """Run a batch, combined in `parts` parts, and the tick after it."""
        self._batch += 1
        size = -(-len(rows) // parts) or 1
        pieces = [rows[start : start + size] for start in range(0, len(rows), size)]
        partial = pl.concat([self.operator.partial(piece) for piece in pieces]) if self._combine and pieces else rows
        with self.store.transaction(0, [self.operator.id], Stamp(0, self._batch)) as transaction:
            clock = Clock(watermark, self._stream_time)
            self.emitted.append(self.operator.step((partial,), State(transaction, self.operator.id), clock))
        seen = [each for each in (self._stream_time, rows["t"].max()) if each is not None]
        self._stream_time = max(seen) if seen else None
        self.tick(watermark)

    def tick(self, watermark: datetime | None = None, stream_time: datetime | None = None) -> None:
        """Fire what is due."""
        self._stream_time = stream_time or self._stream_time
        self._batch += 1
        with self.store.transaction(0, [self.operator.id], Stamp(0, self._batch)) as transaction:
            clock = Clock(watermark, self._stream_time)
            self.emitted.append(self.operator.tick(State(transaction, self.operator.id), clock))

    def lookup(self, points: Sequence[tuple[int, int]]) -> pl.DataFrame:
        """Return the answers of the state to points (key, instant)."""
        requested = self.points(points)
        with self.store.snapshot(0) as reader:
            return self.operator.stored_answer(State(reader, self.operator.id), requested).report

    def completed(self, points: Sequence[tuple[int, int]], rows: pl.DataFrame) -> pl.DataFrame:
        """Return the answers to points, completed from the requested part of the input's changes."""
        with self.store.snapshot(0) as reader:
            answer = self.operator.stored_answer(State(reader, self.operator.id), self.points(points))
        if answer.completion is None:
            return answer.report
        since, until = answer.completion.since, answer.completion.until
        requested = self.points(points).filter(answer.completion.points)["k"]
        needed = pl.col(self.operator.instant).is_between(instant(since), instant(until)) & pl.col("k").is_in(
            requested.implode()
        )
        return answer.completion.report(rows.filter(needed))

    @staticmethod
    def points(points: Sequence[tuple[int, int]]) -> pl.DataFrame:
        """Return points (key, instant) as a frame."""
        rows = [{"k": key, "_time": instant(at)} for key, at in points]
        requested = pl.DataFrame(rows, schema={"k": pl.Int64, "_time": INSTANT})
        return requested.with_columns(encode_keys(requested.select("k")))

    def changes(self) -> pl.DataFrame:
        """Return the net changes emitted so far, in order."""
        net = consolidate(pl.concat(self.emitted))
        return net.sort("k", "t", "_at", "_weight")

    def table(self, name: str = "tiles") -> list[tuple[bytes, list[tuple[object, ...]]]]:
        """Return the stored rows of each key, by key, once all merges are done."""
        full = f"{self.operator.id}/{name}"
        with self.store.snapshot(0) as reader, suppress(InvalidValue):  # a table nobody wrote is not defined
            pieces = list(reader.scan(full))
            if pieces:
                return sorted(_by_key(self._merged(pl.concat(pieces), reader.horizon(full))).items())
        return []

    def _merged(self, rows: pl.DataFrame, horizon: int | None) -> pl.DataFrame:
        """Return stored rows as the store's last merge leaves them."""
        tiles = getattr(self.operator, "tiles", None)
        if tiles is None or not tiles.is_appended:
            return rows
        keys = rows["_key"].unique(maintain_order=True)
        numbered = rows.with_columns(rows["_key"].rank("dense").cast(pl.UInt32).alias("_key_id") - 1)
        folded = TileWriter(tiles).fold(
            numbered.select("_key_id", *tiles.columns).sort("_key_id", maintain_order=True), horizon
        )
        return folded.select(keys.sort().gather(folded["_key_id"]).alias("_key"), pl.exclude("_key_id"))


def _by_key(rows: pl.DataFrame) -> dict[bytes, list[tuple[object, ...]]]:
    found: dict[bytes, list[tuple[object, ...]]] = {}
    for key, *row in rows.rows():
        found.setdefault(key, []).append(tuple(row))
    return found
