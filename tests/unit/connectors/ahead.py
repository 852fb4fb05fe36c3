"""Changes of a table whose rows have timestamps ahead of their commits, the same for tables of any format."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

Put = Callable[[int, str, datetime], None]
"""Puts a row: its id, note and timestamp."""


@dataclass(frozen=True)
class ChangedTable:
    """A table that is changed while a dataset reads it.

    Args:
        start: an instant before the commits.
        put: appends a row.
        change: replaces a row.
        delete: deletes the rows of a condition.
        rows: returns the rows.
        settle: waits until the dataset has them.
        stop: ends the reading; the next `settle` begins it anew.
    """

    start: datetime
    put: Put
    change: Put
    delete: Callable[[str], Any]
    rows: Callable[[], Sequence[Any]]
    settle: Callable[[], None]
    stop: Callable[[], None]

    def replace_rows_ahead(self) -> None:
        """Replace, delete and put again rows that are a month ahead, with earlier timestamps and with later ones."""
        ahead = self.start + timedelta(days=30)
        self.settle()
        for row in (1, 2, 3, 4):
            self.put(row, "ahead", ahead)
        self.settle()
        self.change(1, "changed", self.start)
        self.delete("id = 2 OR id = 3")
        self.settle()
        self.put(2, "again", self.start)
        self.put(3, "again", ahead + timedelta(days=1))
        self.change(4, "later", ahead + timedelta(days=1))
        self.change(4, "now", self.start)
        self.settle()

    def change_at_random(self, seed: int) -> None:
        """Change three rows 24 times, with timestamps of any clock, and stop after each sixth."""
        chance = random.Random(seed)
        for step in range(24):
            row, at = chance.randrange(3), self.start + timedelta(days=chance.choice([0, 0, 1, 20, 30]), seconds=step)
            if any(row == there for there, *_ in self.rows()):
                if chance.random() < 0.5:
                    self.delete(f"id = {row}")
                else:
                    self.change(row, f"n{step}", at)
            else:
                self.put(row, f"n{step}", at)
            if step % 6 == 5:
                self.settle()
                self.stop()
