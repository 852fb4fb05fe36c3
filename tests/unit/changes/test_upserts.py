"""Version histories that follow the changes of a derived dataset, batch by batch."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from tests.seeds import seeds
from umbel.changes.upserts import follow
from umbel.changes.versions import ALIVE, KEY, MICROSECOND, TIME, advance, spans
from umbel.state.memory import MemoryStore
from umbel.state.port import Stamp
from umbel.state.tables import State, TimedTable
from umbel.types.schema import AT, SEQ, WEIGHT

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
COLUMNS = {"v": pl.Int64(), "s": pl.String(), SEQ: pl.Int64(), ALIVE: pl.Boolean()}
CHANGES = {
    KEY: pl.Binary(),
    "v": pl.Int64(),
    "s": pl.String(),
    SEQ: pl.Int64(),
    AT: pl.Datetime("us", "UTC"),
    WEIGHT: pl.Int64(),
}

Row = tuple[int | None, str | None, int]
History = dict[bytes, dict[int, Row | None]]
"""The rows of each key by the instants they begin; None where the row before ends."""
Change = tuple[bytes, int | None, str | None, int, datetime, int]


def changelog(history: History) -> list[Change]:
    found = list[Change]()
    for key, rows in history.items():
        current: Row | None = None
        for at, row in sorted(rows.items()):
            if current is not None:
                found.append((key, *current, BEGIN + timedelta(seconds=at), -1))
            if row is not None:
                found.append((key, *row, BEGIN + timedelta(seconds=at), 1))
            current = row
    return found


def drawn(chance: random.Random, before: History, batch: int) -> History:
    after = {key: dict(rows) for key, rows in before.items()}
    for number in range(chance.randrange(1, 12)):
        rows = after.setdefault(bytes([chance.randrange(4)]), {})
        at = chance.randrange(12)
        if chance.random() < 0.25:
            rows.pop(at, None)
        elif chance.random() < 0.2:
            rows[at] = None
        else:
            rows[at] = (chance.choice([None, 1, 2]), chance.choice([None, "a"]), 100 * batch + number)
    return after


def differing(before: History, after: History, chance: random.Random) -> list[Change]:
    """Return the changes between two histories, in any order, with rows that come and go at once."""
    old, new = changelog(before), changelog(after)
    found = [(*each[:-1], -each[-1]) for each in old if each not in new] + [each for each in new if each not in old]
    for key, *rest in chance.sample(new, min(len(new), chance.randrange(3))):
        found += [(key, *rest[:-1], 1), (key, *rest[:-1], -1)]
    for number in range(chance.randrange(3)):
        row = (bytes([number]), 7, None, 0, BEGIN + timedelta(seconds=chance.randrange(20, 40)))
        found += [(*row, 1), (*row, -1)]
    chance.shuffle(found)
    return found


def corrected(changes: pl.DataFrame, table: TimedTable) -> None:
    """Apply changes by summing them up with those of the stored versions, key by key."""
    before = table.scan(spans(changes, pl.col(AT), pl.col(AT) + MICROSECOND), before=True)
    after = advance(before, changes)
    entries = changes.select(KEY, pl.col(AT).alias(TIME)).unique()
    table.replace(entries, after.join(entries, on=[KEY, TIME], how="semi"))


def contents(table: TimedTable) -> list[tuple[object, ...]]:
    return table.all().select(KEY, TIME, ALIVE, "v", "s", SEQ).rows()


@pytest.mark.parametrize("seed", seeds(6, 20))
def test_a_history_follows_changes_of_any_batches(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the rows that there are, and the same entries as if all changes were summed up with those stored."""
    chance, store, history = random.Random(seed), MemoryStore(shards=1), History()
    for batch in range(8):
        after = drawn(chance, history, batch)
        changes = pl.DataFrame(differing(history, after, chance), CHANGES, orient="row")
        with store.transaction(0, ["op"], Stamp(0, batch)) as transaction:
            state = State(transaction, "op")
            followed, summed = state.timed("followed", COLUMNS), state.timed("summed", COLUMNS)
            if changes.height:
                follow(changes, followed)
                corrected(changes, summed)
            assert contents(followed) == contents(summed)
        history = after
    live = {(row[0], row[1]): (row[3:]) for row in contents(followed) if row[2]}
    expected = {
        (key, BEGIN + timedelta(seconds=at)): row for key, rows in history.items() for at, row in rows.items() if row
    }
    assert live == expected
