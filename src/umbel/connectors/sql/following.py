"""Following the changes of a table: the rows of a snapshot, then the stream.

Changes are staged, durably, transaction by transaction.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, ClassVar

import polars as pl

from umbel.connectors.polling import Poller
from umbel.connectors.sql.changes import Deletions
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.rows import AT, DELETE, INSERT, OP, START, TRUNCATE, TableSource
from umbel.connectors.staging import StagedPart, encoded

PART_ROWS = 100_000
"""Changes after which those received so far are staged as a part, if no transaction is open."""
DELAY = 0.1
"""Seconds for which changes are collected before they are staged."""
SESSION = 60.0
"""Seconds after which a stream is begun anew, and what the server needs is checked again."""
ANEW = "commit the dataset as a new version: it is read anew from the beginning"


@dataclass(frozen=True)
class FollowedSource(TableSource):
    """A table whose changes are read."""

    position_fact: ClassVar[str]
    """The fact of a part of changes that is the position after them."""

    @abstractmethod
    def load(self, poller: Poller) -> None:
        """Stage the rows that exist, and save their position."""

    @abstractmethod
    def follow(self, poller: Poller) -> None:
        """Stage the changes for a while."""

    def staged_key(self, values: Sequence[Any]) -> tuple[Hashable, ...]:
        """Return the key that the stream has for staged values."""
        return tuple(values)

    def visible(self) -> Sequence[int]:
        state = self.stage.state()
        token, spans, copying = state.get("snapshot"), state.get("spans"), state.get("copy", {}).get("snapshot", "")
        parts = (self.stage.part(number) for number in self.stage.numbers())
        # a report behind parts of a copy that goes on waits for them: a position behind it is one behind them
        ready = takewhile(lambda part: part.facts.get("snapshot") != copying, parts)
        return [part.number for part in ready if self._counts(part, token, spans)]

    def _counts(self, part: StagedPart, token: str | None, spans: Sequence[Sequence[int]] | None) -> bool:
        """Return whether a part is of no interrupted copy, nor of an interrupted range."""
        if part.facts.get("snapshot", token) != token:
            return False
        is_copied = "snapshot" in part.facts and self.position_fact not in part.facts
        return not is_copied or spans is None or any(first <= part.number <= last for first, last in spans)

    def take_over(self) -> None:
        super().take_over()
        self.__dict__.pop("deletions", None)

    def read_on(self, poller: Poller) -> float:
        """Copy the table if that is still to be done, then follow its changes."""
        is_loading = self.is_loading
        if not is_loading:
            if not self.has_room(poller):
                return 1.0
            self._retain_truncation()
            self.stage.expire(poller.consumed + 1)
        try:
            (self.load if is_loading else self.follow)(poller)
        except BaseException:
            self.__dict__.pop("deletions", None)  # what was decoded may not have been staged
            raise
        return 0.0

    def stage_copy(
        self, frames: Iterator[pl.DataFrame], columns: Mapping[str, Column], token: str, poller: Poller
    ) -> bool:
        """Stage the rows of a snapshot as inserts; return whether all of them were read."""
        return self.stage_encoded(((encoded(inserted(each)), each.height) for each in frames), columns, token, poller)

    def stage_encoded(
        self, parts: Iterator[tuple[bytes, int]], columns: Mapping[str, Column], token: str, poller: Poller
    ) -> bool:
        """Stage encoded rows of a snapshot; return whether all were read."""
        facts = {"columns": [column.plain for column in columns.values()], "snapshot": token}
        for content, rows in parts:
            self.stage.append_encoded(content, rows, facts)
            if poller.is_stopping:
                return False
        return not poller.is_stopping

    def _retain_truncation(self) -> None:
        """Save the last truncation beyond its part."""
        state, instant = self.stage.state(), self.deletions.truncated_at
        if instant is not None and instant != state.get("truncated"):
            self.stage.save({**state, "truncated": instant})

    @cached_property
    def deletions(self) -> Deletions:
        """The last deletions, restored from the staged parts."""
        found, keys, state = Deletions(), list(self.options.keys or ()), self.stage.state()
        found.truncated_at, token = state.get("truncated"), state.get("copy", state).get("snapshot")
        for number in self.stage.numbers() if keys else ():
            facts = self.stage.part(number).facts
            is_changes = self.position_fact in facts and facts.get("snapshot", token) == token
            rows = self.stage.read(number) if is_changes else pl.DataFrame()
            there = keys if {*keys} <= {*rows.columns} else []
            ended = rows.filter(pl.col(OP).is_in([DELETE, TRUNCATE])) if OP in rows.columns else rows.clear()
            for op, at, *key in ended.select(OP, AT, *there).iter_rows() if ended.height else ():
                if op == TRUNCATE:
                    found.truncate(at)
                elif key:
                    found.add(self.staged_key(key), at)
        return found

    def last_changes(self) -> StagedPart | None:
        """Return the last part of changes, None for none."""
        parts = (self.stage.part(number) for number in reversed(self.stage.numbers()))
        return next((part for part in parts if self.position_fact in part.facts), None)


def inserted(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a snapshot as they are staged."""
    none = pl.lit(None, pl.Int64)
    return rows.with_columns(pl.lit(INSERT).alias(OP), none.alias(AT), none.alias(START))
