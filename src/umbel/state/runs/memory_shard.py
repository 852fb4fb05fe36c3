"""A shard in memory."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from umbel.state.runs.memtable import Memtable
from umbel.state.runs.records import JournalRecord, PlacedRecord
from umbel.state.runs.views import ShardView
from umbel.state.runs.writable_shard import WritableShard

if TYPE_CHECKING:
    from collections.abc import Iterator


class MemoryShard(WritableShard):
    """A shard in the memory of this process."""

    def __init__(self) -> None:
        super().__init__()
        self._view = ShardView(memtable=Memtable(is_whole=True))
        self._records = 0

    def refresh(self) -> ShardView:
        """Return what is committed."""
        return self._view

    @contextmanager
    def _locked(self) -> Iterator[ShardView]:
        yield self._view

    def _prepare(self, record: JournalRecord) -> None:
        """Do nothing: records stay in memory as they are."""

    def _commit(self, view: ShardView, record: JournalRecord) -> None:
        self._records += 1
        placed = PlacedRecord(self._records, 0, 0, record)
        memtable = view.memtable.added(placed, record.state_ids, self.schemas)
        self._view = replace(view, memtable=memtable, _sources={})

    def drop(self, state_id: str) -> None:
        """Delete all state of a state id."""
        with self.writing() as view:
            self._view = replace(view, memtable=view.memtable.without(state_id), _sources={})
            self._forget(state_id)

    def size(self) -> int:
        """Return the bytes of all rows."""
        tables = self._view.memtable.tables
        return sum(block.size for table in tables for block in self._view.memtable.sources(table))
