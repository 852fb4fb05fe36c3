"""Memtables: the records of a journal in no run yet, as sorted blocks.

The writes of a state id's last batch are pending: the same batch, run again, replaces them. Those of earlier batches are final,
and small final blocks are merged, so that a lookup searches a number of blocks that grows with the logarithm of the records.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from umbel.state.port import Fenced, StaleBatch, Stamp
from umbel.state.runs.addresses import merge_frames
from umbel.state.runs.block import Block
from umbel.state.runs.manifest import LiveRecord, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from umbel.state.runs.records import PlacedRecord
    from umbel.state.runs.rules import TableSchema

    Schemas = Mapping[str, TableSchema]

MERGED_ROWS = 1 << 18
"""Blocks of more rows are not merged in memory."""
COSTLY_BLOCKS = 8
"""Up to so many blocks of a table whose merge costs much are left as they are."""


def state_id_of(table: str) -> str:
    """Return the state id of a table's full name, `state_id/table`."""
    return table.partition("/")[0]


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A state id's writes in one record of its last batch."""

    stamp: Stamp
    number: int
    start: int
    end: int
    blocks: Mapping[str, Block]
    horizons: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Memtable:
    """The records that are in no run yet. Immutable: a write makes a new one.

    Args:
        stamps: the last write of each state id.
        final: the last batch and step of each state id that cannot be replaced.
        blocks: final rows of each table, oldest first.
        pending: writes of each state id's last batch, in order.
        horizons: final horizons of tables, in µs.
        is_whole: True if there are no runs: merges drop what is removed, and have no limit.
    """

    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    final: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    blocks: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    pending: Mapping[str, tuple[PendingWrite, ...]] = field(default_factory=dict)
    horizons: Mapping[str, int] = field(default_factory=dict)
    is_whole: bool = False

    @classmethod
    def at(cls, manifest: Manifest) -> Memtable:
        """Return the empty memtable at a manifest's position in the journal."""
        return cls(dict(manifest.stamps), dict(manifest.final), horizons=dict(manifest.horizons))

    @property
    def size(self) -> int:
        """Bytes of final blocks."""
        return sum(block.size for blocks in self.blocks.values() for block in blocks)

    @property
    def live(self) -> tuple[LiveRecord, ...]:
        """The records of the journal that are pending."""
        found: dict[tuple[int, int, int], list[str]] = {}
        for state_id, writes in self.pending.items():
            for write in writes:
                found.setdefault((write.number, write.start, write.end), []).append(state_id)
        return tuple(LiveRecord(*place, tuple(sorted(ids))) for place, ids in sorted(found.items()))

    @property
    def tables(self) -> set[str]:
        """The full names of tables with rows in memory."""
        pending = (write for writes in self.pending.values() for write in writes)
        return {*self.blocks, *(table for write in pending for table in write.blocks)}

    def without(self, state_id: str) -> Memtable:
        """Return the memtable without a state id."""
        return Memtable(
            {name: each for name, each in self.stamps.items() if name != state_id},
            {name: each for name, each in self.final.items() if name != state_id},
            {table: each for table, each in self.blocks.items() if state_id_of(table) != state_id},
            {name: each for name, each in self.pending.items() if name != state_id},
            {table: each for table, each in self.horizons.items() if state_id_of(table) != state_id},
            self.is_whole,
        )

    def sources(self, table: str) -> list[Block]:
        """Return the blocks of a table, oldest first."""
        writes = self.pending.get(state_id_of(table), ())
        return [*self.blocks.get(table, ()), *(write.blocks[table] for write in writes if table in write.blocks)]

    def horizon(self, table: str) -> int | None:
        """Return the horizon of a table in µs, None if there is none."""
        writes = self.pending.get(state_id_of(table), ())
        found = [write.horizons[table] for write in writes if table in write.horizons]
        return max([*found, *([self.horizons[table]] if table in self.horizons else [])], default=None)

    def must_accept(self, state_ids: Iterable[str], stamp: Stamp) -> None:
        """Raise unless a transaction with this stamp may follow.

        Raises:
            Fenced: a state id was written by a newer epoch.
            StaleBatch: a state id is past the batch, or the batch cannot be replaced.
        """
        for state_id in state_ids:
            known = self.stamps.get(state_id)
            if known is not None and known.epoch > stamp.epoch:
                raise Fenced(
                    f"the state of operator {state_id} belongs to epoch {known.epoch}, not to epoch {stamp.epoch}",
                    hint="another worker has taken this job over; this one has to stop",
                )
            if known is not None and known.batch > stamp.batch:
                raise StaleBatch(
                    f"the state of operator {state_id} is at batch {known.batch}; batch {stamp.batch} came before it",
                    hint="the checkpoint and the store do not belong together",
                )
            final = self.final.get(state_id)
            if final is not None and final >= (stamp.batch, stamp.step):
                raise StaleBatch(
                    f"batch {stamp.batch} of operator {state_id} was written without undo and cannot be applied again",
                    hint="skip what Store.stamp says is done, or drop the operator's state and fill it again",
                )

    def begun(self, state_ids: Iterable[str], stamp: Stamp, schemas: Schemas) -> Memtable:
        """Return the memtable at a transaction's start: replaced steps gone, earlier batches final."""
        found = self
        for state_id in state_ids:
            known = self.stamps.get(state_id)
            if known is None or known.batch < stamp.batch:
                found = found._finished(state_id, schemas)
            else:
                earlier = tuple(w for w in found.pending.get(state_id, ()) if w.stamp.step < stamp.step)
                found = replace(found, pending={**found.pending, state_id: earlier})
        return found

    def added(self, placed: PlacedRecord, state_ids: Iterable[str], schemas: Schemas) -> Memtable:
        """Return the memtable with a record whose transaction has `begun`."""
        record, found = placed.record, self
        blocks = {table: Block(frame) for table, frame in record.frames.items()}
        for state_id in state_ids:
            own = {table: block for table, block in blocks.items() if state_id_of(table) == state_id}
            horizons = {table: each for table, each in record.horizons.items() if state_id_of(table) == state_id}
            write = PendingWrite(record.stamp, placed.number, placed.start, placed.end, own, horizons)
            pending = (*found.pending.get(state_id, ()), write)
            found = replace(found, pending={**found.pending, state_id: pending})
            if not record.undo:
                found = found._finished(state_id, schemas)
                final = {**found.final, state_id: (record.stamp.batch, record.stamp.step)}
                found = replace(found, final=final)
        return replace(found, stamps={**found.stamps, **dict.fromkeys(state_ids, record.stamp)})

    def _finished(self, state_id: str, schemas: Schemas) -> Memtable:
        """Return the memtable with the pending writes of a state id made final."""
        writes = self.pending.get(state_id, ())
        if not writes:
            return self
        blocks, horizons = dict(self.blocks), dict(self.horizons)
        for write in writes:
            for table, horizon in write.horizons.items():
                horizons[table] = max(horizon, horizons.get(table, horizon))
            for table, block in write.blocks.items():
                known, until = blocks.get(table, ()), horizons.get(table)
                blocks[table] = _pushed(known, block, schemas.get(table), until, is_whole=self.is_whole)
        pending = {name: each for name, each in self.pending.items() if name != state_id}
        return replace(self, blocks=blocks, horizons=horizons, pending=pending)


def _pushed(
    blocks: tuple[Block, ...], block: Block, schema: TableSchema | None, horizon: int | None, *, is_whole: bool
) -> tuple[Block, ...]:
    """Return blocks and a newer one, with small ones merged.

    Args:
        blocks: the blocks of a table, oldest first.
        block: the newer one.
        schema: of the table; None if it is unknown.
        horizon: of the table, in µs.
        is_whole: True if the table has no runs.
    """
    found = [*blocks, block]
    if schema is None:
        return tuple(found)
    if schema.rule.is_costly and not is_whole:
        return tuple(found) if len(found) <= COSTLY_BLOCKS else _with_tail_merged(found, schema)
    while len(found) > 1:
        before, last = found[-2:]
        if before.rows > 2 * last.rows or (not is_whole and before.rows + last.rows > MERGED_ROWS):
            break
        complete = is_whole and len(found) == 2
        merged = merge_frames([before.frame, last.frame], schema, complete=complete, horizon=horizon)
        found[-2:] = [Block(merged)] if merged.height else []
    return tuple(found)


def _with_tail_merged(blocks: list[Block], schema: TableSchema) -> tuple[Block, ...]:
    """Return blocks with the newest ones merged.

    These are those that are not much larger than all after them.
    """
    rows, first = blocks[-1].rows, len(blocks) - 1
    while first and blocks[first - 1].rows <= min(2 * rows, MERGED_ROWS - rows):
        first -= 1
        rows += blocks[first].rows
    if first == len(blocks) - 1:
        return tuple(blocks)
    return (*blocks[:first], Block(merge_frames([each.frame for each in blocks[first:]], schema, complete=False)))
