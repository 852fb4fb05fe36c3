"""Contract suites of connectors, for the tests of the packages that have them.

Derive a class named `Test…` from one of these and give it its abstract methods; pytest runs what every connector must hold.
"""

from __future__ import annotations

import json
import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from umbel.connectors.polling import stop_polling
from umbel.connectors.sinks import RowChange, SinkPosition, SinkWriter
from umbel.connectors.splits import Position, SplitSource
from umbel.definitions.arguments import DataConnector, ReadOptions
from umbel.types.dtypes import Int

PATIENCE = 60.0
"""Seconds for which a suite waits for rows."""
COLUMNS = {"n": Int()}


def read_options(folder: Path, **others: Any) -> ReadOptions:
    """Return the options of a keyless source that is read ten times a second."""
    known = {"directory": folder, "key": "Contract@1/0#contract", "dataset": "Contract", "cdc": "append"}
    return ReadOptions(
        **{**known, "every": 100_000, "disorder": 0, "columns": None, "keys": (), "is_keyed": False, **others}
    )


class SourceContract(ABC):
    """The contract of a source: each row once, after restarts too."""

    @abstractmethod
    def connector(self, folder: Path) -> DataConnector:
        """Return the connector of a source that has no rows yet; called once per test.

        Args:
            folder: an empty folder for whatever the source needs.
        """

    @abstractmethod
    def put(self, numbers: Sequence[int]) -> None:
        """Make rows appear in the source, each an object with one integer `n`."""

    def reading(self, connector: DataConnector, folder: Path) -> SplitSource:
        """Return the reading side as another process would make it."""
        stop_polling(folder)
        return connector.reader_of(read_options(folder))

    def test_rows_are_read_once(self, tmp_path: Path) -> None:
        """Check that rows come once, also those that are added later, and nothing after that."""
        connector = self._made(tmp_path)
        self.put(range(50))
        reading, position, found = self.reading(connector, tmp_path), None, list[int]()
        found, position = self._read(reading, position, 50)
        assert sorted(found) == list(range(50))
        self.put(range(50, 60))
        found, position = self._read(reading, position, 10)
        assert sorted(found) == list(range(50, 60))
        assert self._planned(reading, position) == ([], position)

    def test_a_split_gives_the_same_rows_again(self, tmp_path: Path) -> None:
        """Check that a split has the same rows in every process."""
        connector = self._made(tmp_path)
        self.put(range(20))
        splits, _ = self._some(self.reading(connector, tmp_path), None)
        self.put(range(20, 40))
        first, again = (
            [(batch.first, batch.raw.frame.rows()) for batch in self._opened(self.reading(connector, tmp_path), splits)]
            for _ in range(2)
        )
        assert first == again
        assert first

    def test_reading_goes_on_after_every_restart(self, tmp_path: Path) -> None:
        """Check that positions are plain data and survive restarts."""
        connector, position, found = self._made(tmp_path), None, list[int]()
        numbers = list[int]()
        for wave in range(3):
            self.put(range(wave * 30, wave * 30 + 30))
            while len(found) < wave * 30 + 30:
                reading = pickle.loads(pickle.dumps(self.reading(connector, tmp_path)))
                splits, position = self._some(reading, json.loads(json.dumps(position)), budget=1)
                reading.check(position)
                for batch in self._opened(reading, json.loads(json.dumps(splits))):
                    found += batch.raw.frame["n"].to_list()
                    rows = range(batch.raw.frame.height)
                    numbers += [batch.first + (row if batch.steps is None else int(batch.steps[row])) for row in rows]
        assert sorted(found) == list(range(90))
        assert len(set(numbers)) == 90

    def test_it_tells_where_a_row_is(self, tmp_path: Path) -> None:
        """Check the location and the text of a row, for dead letters."""
        connector = self._made(tmp_path)
        self.put([7])
        reading = self.reading(connector, tmp_path)
        (batch,) = [each for each in self._opened(reading, self._some(reading, None)[0]) if each.raw.frame.height]
        assert isinstance(batch.where(0), str)
        assert b"7" in batch.text(0)

    def test_it_is_not_behind_at_its_end(self, tmp_path: Path) -> None:
        """Check that nothing is left once all rows were read."""
        connector = self._made(tmp_path)
        self.put(range(5))
        reading = self.reading(connector, tmp_path)
        _, position = self._read(reading, None, 5)
        _wait(lambda: self._planned(reading, position)[0] == [] and not reading.lag(position).rows)

    def _made(self, folder: Path) -> DataConnector:
        own = folder / "system"
        own.mkdir()
        return self.connector(own)

    def _planned(self, reading: SplitSource, position: Position, budget: int = 1 << 30) -> tuple[list[Any], Position]:
        reading.tend()
        found, reached = reading.plan(position, budget)
        return [dict(split) for split, _ in found], reached

    def _some(self, reading: SplitSource, position: Position, budget: int = 1 << 30) -> tuple[list[Any], Position]:
        """Plan until there is something."""
        found = self._planned(reading, position, budget)

        def is_there() -> bool:
            nonlocal found
            found = found if found[0] else self._planned(reading, position, budget)
            return bool(found[0])

        _wait(is_there)
        return found

    def _read(self, reading: SplitSource, position: Position, count: int) -> tuple[list[int], Position]:
        """Read so many rows."""
        rows = list[int]()
        while len(rows) < count:
            splits, position = self._some(reading, position)
            rows += [n for batch in self._opened(reading, splits) for n in batch.raw.frame["n"].to_list()]
        return rows, position

    @staticmethod
    def _opened(reading: SplitSource, splits: Sequence[Any]) -> list[Any]:
        return [batch for split in splits for batch in reading.open(split, COLUMNS, exact=True)]


class SinkContract(ABC):
    """The contract of a sink: a batch that comes again has no effect."""

    @abstractmethod
    def writer(self, folder: Path) -> SinkWriter:
        """Return a writer as a new process would make it.

        The sink is `contract`, of a dataset with the key `k` and the value `n`.
        """

    @abstractmethod
    def delivered(self) -> dict[int, int]:
        """Return what the destination has: the value by key."""

    @abstractmethod
    def count(self) -> int | None:
        """Return how many changes had an effect; None if the destination has rows only."""

    def test_changes_arrive_once(self, tmp_path: Path) -> None:
        """Check that a batch that comes again has no effect, and that later changes have."""
        writer, position = self.writer(tmp_path), SinkPosition(0)
        writer.position()
        writer.write([_change(k, None, k) for k in range(5)], position)
        for _ in range(2):  # as after a lost answer, and after a crash
            again = self.writer(tmp_path)
            if again.position() < position:
                again.write([_change(k, None, k) for k in range(5)], position)
            again.close()
        assert self.delivered() == {k: k for k in range(5)}
        assert self.count() in {None, 5}
        writer = self.writer(tmp_path)
        writer.position()
        writer.write([_change(0, 0, 10), _change(1, 1, None)], SinkPosition(1))
        writer.close()
        assert self.delivered() == {0: 10, 2: 2, 3: 3, 4: 4}
        assert self.count() in {None, 7}

    def test_a_position_lasts(self, tmp_path: Path) -> None:
        """Check that another process finds the position, if the destination keeps it."""
        writer = self.writer(tmp_path)
        if writer.keeps_position:
            writer.position()
            writer.write([_change(1, None, 1)], SinkPosition(3, 2))
            assert self.writer(tmp_path).position() == SinkPosition(3, 2)


def _change(key: int, before: int | None, after: int | None) -> RowChange:
    sides = [
        None if value is None else {"k": key, "n": value, "t": "2024-01-01T00:00:00Z"} for value in (before, after)
    ]
    return RowChange({"k": key}, sides[0], sides[1], 1_704_067_200_000_000)


def _wait(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("the source has no more rows, it seems")
        time.sleep(0.05)
