"""Changes of a database in their order: truncations and replacements, against a loop."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from tests.seeds import seeds
from umbel.changes.upserts import upsert, with_key
from umbel.changes.versions import version_columns
from umbel.graph.execution import route
from umbel.graph.graph import GraphNode
from umbel.operators.index import Index, IndexMode
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Clock
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.state.tables import State
from umbel.types.dtypes import Int
from umbel.types.schema import AT, REPLACING, SEQ, TRUNCATION, WEIGHT, Schema

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = Schema((("k", Int()),), (("v", Int()),), "t")
LEAF = Leaf(dataset="D", version=1, columns=SCHEMA)
INDEX = Index(parents=(LEAF,), dataset="D", mode=IndexMode.UPSERT)
Change = tuple[int | None, int | None, int, int]


def frame(changes: list[Change], first: int) -> pl.DataFrame:
    """Return changes `(key, value, instant, weight)`, numbered in order."""
    rows = [
        (key, value, BEGIN + timedelta(microseconds=at), BEGIN + timedelta(microseconds=at), weight, first + number)
        for number, (key, value, at, weight) in enumerate(changes)
    ]
    return pl.DataFrame(rows, SCHEMA.changes(), orient="row")


def naive(changes: list[Change], now: int) -> dict[int, int]:
    """Return the rows as of an instant; what comes later in order wins, and a truncation ends all before.

    A replacement ends what its key had before it and begins later.
    """
    found = dict[int, tuple[int, int, int, int | None]]()
    alive = list[tuple[int, int, int, int | None]]()
    for number, (key, value, at, weight) in enumerate(changes):
        if weight == TRUNCATION:
            starts = {(each[0], max(at, each[1])) for each in alive}
            alive += [(key, begin, number, None) for key, begin in starts]
        else:
            assert key is not None
            if abs(weight) == REPLACING:
                alive = [each for each in alive if each[0] != key or each[1] <= at]
            alive.append((key, at, number, value if weight > 0 else None))
    for entry in sorted(alive, key=lambda each: (each[1], each[2])):
        if entry[1] <= now:
            found[entry[0]] = entry
    return {key: entry[3] for key, entry in found.items() if entry[3] is not None}


def drawn(chance: random.Random) -> list[Change]:
    """Return changes as readers emit them: a row after a truncation begins after it, or in another one's future."""
    changes, floor = list[Change](), 0
    for step in range(60):
        at = max(floor, step + chance.choice([0, 0, 0, 3, 20]))
        if chance.random() < 0.1:
            instant = max(floor, step)
            changes.append((None, None, instant, TRUNCATION))
            floor = instant + 1
        elif chance.random() < 0.25:
            changes.append((chance.randrange(6), None, max(floor, step), chance.choice([-1, -REPLACING])))
        elif chance.random() < 0.25:
            changes.append((chance.randrange(6), step, chance.choice([at, max(floor, step)]), REPLACING))
        else:
            changes.append((chance.randrange(6), step, at, 1))
    return changes


@pytest.mark.parametrize("seed", seeds(5, 20))
def test_rows_end_with_truncations_and_replacements(seed: int) -> None:
    chance = random.Random(seed)
    changes, store, shards, log = drawn(chance), MemoryStore(3), 3, list[pl.DataFrame]()
    node, done, batch = GraphNode(INDEX, (), "s", 1, 0), 0, 0
    while done < len(changes):
        size = chance.randrange(1, 12)
        for shard, part in route(node, 0, frame(changes[done : done + size], done), shards):
            with store.transaction(shard, ["s"], Stamp(1, batch)) as transaction:
                log.append(INDEX.step((part,), State(transaction, "s"), Clock()))
        done, batch = done + size, batch + 1
    net = pl.concat(log)
    for now in (10, 40, 59, 1000):
        known = net.filter(pl.col(AT) <= BEGIN + timedelta(microseconds=now))
        left = known.group_by("k", "v").agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) != 0)
        assert set(left[WEIGHT]) <= {1}, seed
        assert dict(left.select("k", "v").rows()) == naive(changes, now), (seed, now)


def test_a_truncation_of_nothing_is_nothing() -> None:
    store = MemoryStore(1)
    with store.transaction(0, ["s"], Stamp(1, 0)) as transaction:
        made = INDEX.step((frame([(None, None, 5, TRUNCATION)], 0),), State(transaction, "s"), Clock())
        assert made.height == 0
        table = State(transaction, "s").timed("versions", version_columns(SCHEMA))
        rows = with_key(frame([(1, 2, 3, 1)], 1), ["k"])
        assert upsert(rows, table).select("k", WEIGHT, SEQ).rows() == [(1, 1, 1)]
