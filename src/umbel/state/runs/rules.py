"""Merge rules of tables: the meaning of several entries with one address.

A rule gets rows sorted by address, within an address oldest first, and returns the rows of their merge in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from umbel.errors import InvalidValue
from umbel.state.runs.sorting import gathered, order_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Flags = NDArray[np.bool_]

KEY = "_key"
KEY_ID = "_key_id"
"""The column with a key's index among the requested keys."""
HASH = "_hash"
SOURCE = "_seq_source"
"""The number of the sorted frame a row comes from, oldest first."""
REMOVED = "_removed"
NET_WEIGHT = "_weight"
_GROUP = "_key_entry"


class MergeRule(ABC):
    """The meaning of several entries with one address."""

    @property
    def marks(self) -> dict[str, pl.DataType]:
        """The columns that the rule adds to the stored rows."""
        return {}

    @property
    def drops_early(self) -> bool:
        """True if expired rows may be dropped before the oldest entries are merged."""
        return True

    @property
    def shown(self) -> tuple[str, ...]:
        """The marks that are part of a lookup's result."""
        return ()

    @property
    def is_costly(self) -> bool:
        """True if merging costs so much that few small blocks are not merged in memory."""
        return False

    @abstractmethod
    def merge(self, rows: pl.DataFrame, begins: Flags, *, complete: bool, horizon: int | None = None) -> pl.DataFrame:
        """Return the merged rows.

        Args:
            rows: by address, within an address oldest first; with `SOURCE`.
            begins: mask of the first row of each address.
            complete: True if no older entries of these addresses exist elsewhere.
            horizon: the table's horizon in µs, when stored rows are merged; None when they are read.
        """


@dataclass(frozen=True, slots=True)
class ReplaceRule(MergeRule):
    """The newest group of rows of an address wins; a tombstone removes the address.

    Args:
        in_order: True if no group of an address expires after a newer one of it: when one is dropped, all before it have expired.
    """

    in_order: bool = False

    @property
    def marks(self) -> dict[str, pl.DataType]:
        return {REMOVED: pl.Boolean()}

    @property
    def drops_early(self) -> bool:
        return self.in_order  # else the group before it would come back

    def merge(self, rows: pl.DataFrame, begins: Flags, *, complete: bool, horizon: int | None = None) -> pl.DataFrame:
        source = rows[SOURCE].to_numpy()
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(source))
        remaining = source == np.repeat(source[ends - 1], ends - starts) if len(starts) else begins
        if complete:
            remaining = remaining & ~rows[REMOVED].to_numpy()
        return rows if remaining.all() else rows.filter(pl.Series(remaining))


@dataclass(frozen=True, slots=True)
class SumRule(MergeRule):
    """Partial states of an address are merged into one row by Polars expressions.

    Args:
        states: the merge expression of each column, associative and commutative; the merge of a single row must be that row.
        empty: an expression for merged rows that equal no row at all, such as a count of 0.
    """

    states: Mapping[str, pl.Expr] = field(hash=False)
    empty: pl.Expr | None = field(default=None, hash=False)

    def merge(self, rows: pl.DataFrame, begins: Flags, *, complete: bool, horizon: int | None = None) -> pl.DataFrame:
        if not begins.all():
            group = pl.Series(_GROUP, np.cumsum(begins)).set_sorted()
            address = [pl.col(name).first() for name in rows.columns if name not in self.states]
            states = [expression.alias(name) for name, expression in self.states.items()]
            merged = rows.with_columns(group).group_by(_GROUP, maintain_order=True).agg(*address, *states)
            rows = merged.select(rows.columns).cast({name: rows.schema[name] for name in self.states})
        if complete and self.empty is not None:
            rows = rows.filter(~self.empty)
        return rows


Folding = Callable[[pl.DataFrame, int | None], pl.DataFrame]
"""Merges rows with `KEY_ID`, in order of it, and returns them so; what is behind the horizon in µs may be dropped."""


@dataclass(frozen=True, slots=True)
class FoldRule(MergeRule):
    """The rows of a key are merged by a function of frames.

    It may merge them in any portions.

    The rows of one source are merged already. The table has no order.

    Args:
        fold: the function.
    """

    fold: Folding

    @property
    def is_costly(self) -> bool:
        return True

    def merge(self, rows: pl.DataFrame, begins: Flags, *, complete: bool, horizon: int | None = None) -> pl.DataFrame:
        starts, source = np.flatnonzero(begins), rows[SOURCE].to_numpy()
        sizes = np.diff(starts, append=len(source))
        is_due = source[starts] != source[starts + sizes - 1]
        if (complete and horizon is not None) or 2 * sizes[is_due].sum() > rows.height:
            is_due[:] = True  # to take a few others out and in again costs more than to fold them
        if not is_due.any():
            return rows
        due = np.repeat(is_due, sizes)
        address = [name for name in (HASH, KEY, KEY_ID, SOURCE) if name in rows.columns]
        numbers = np.repeat(np.arange(len(starts)), sizes)
        entries = (rows if due.all() else rows.filter(due)).drop(address)
        entries.insert_column(0, pl.Series(KEY_ID, numbers[due].astype(np.uint32)))
        folded = self.fold(entries, horizon if complete else None)
        owners = folded[KEY_ID].to_numpy()
        merged = folded.drop(KEY_ID).hstack(gathered(rows.select(address), starts[owners])).select(rows.columns)
        if due.all():
            return merged
        order = np.concatenate((numbers[~due], owners)).argsort(kind="stable")
        return gathered(pl.concat([rows.filter(~due), merged], rechunk=True), order)


@dataclass(frozen=True, slots=True)
class CollectRule(MergeRule):
    """All rows of an address are retained, equal ones with their summed weight."""

    @property
    def marks(self) -> dict[str, pl.DataType]:
        return {NET_WEIGHT: pl.Int64()}

    @property
    def shown(self) -> tuple[str, ...]:
        return (NET_WEIGHT,)

    def merge(self, rows: pl.DataFrame, begins: Flags, *, complete: bool, horizon: int | None = None) -> pl.DataFrame:
        nonzero = pl.col(NET_WEIGHT) != 0
        if begins.all():
            return rows.filter(nonzero)
        numbers = np.cumsum(begins, dtype=np.int64)
        shared: Flags = np.bincount(numbers)[numbers] > 1
        shared[shared] = _may_repeat(rows.filter(pl.Series(shared)), numbers[shared])
        if not shared.any():
            return rows.filter(nonzero)
        numbered = rows.with_columns(pl.Series(_GROUP, numbers))
        identity = [name for name in numbered.columns if name not in (NET_WEIGHT, SOURCE)]
        several = numbered.filter(pl.Series(shared)).group_by(identity, maintain_order=True)
        merged = several.agg(pl.col(NET_WEIGHT).sum(), pl.col(SOURCE).last()).select(numbered.columns)
        both = pl.concat([numbered.filter(pl.Series(~shared)), merged]).filter(nonzero)
        return both.sort(_GROUP, maintain_order=True).drop(_GROUP)


def _may_repeat(rows: pl.DataFrame, numbers: NDArray[np.int64]) -> Flags:
    """Return a mask of the collected rows with a likely equal at their address.

    Args:
        rows: the rows.
        numbers: of their addresses.
    """
    values = rows.drop([name for name in (HASH, KEY, NET_WEIGHT, SOURCE) if name in rows.columns])
    hashes = values.hash_rows().to_numpy() >> np.uint64(24)
    order = order_of(numbers, hashes.astype(np.int64))
    is_same = (numbers[order[1:]] == numbers[order[:-1]]) & (hashes[order[1:]] == hashes[order[:-1]])
    found = np.zeros(len(numbers), np.bool_)
    found[order[1:][is_same]] = True
    found[order[:-1][is_same]] = True
    return found


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table and the meaning of its entries.

    Args:
        columns: the values, name and Polars type.
        rule: the meaning of several entries with one address.
        order: the columns that make up the address after the key, name and type: whole numbers or instants, never null.
        expires: an expression for the instant from which on a row is not needed, compared with the table's horizon; it reads one
            row at a time. Null is never.

    Raises:
        InvalidValue: the expiry reads columns that differ between entries which are merged into one.
    """

    columns: Mapping[str, Any]
    rule: MergeRule
    order: Mapping[str, Any] = field(default_factory=dict)
    expires: pl.Expr | None = None

    def __post_init__(self) -> None:
        if self.expires is not None and isinstance(self.rule, SumRule):
            read = set(self.expires.meta.root_names()) - set(self.order)
            if read:
                raise InvalidValue(
                    f"the expiry of a summed table reads {sorted(read)}, which differ between partial states of one address",
                    hint=f"use the columns of the address only: {list(self.order)}",
                )

    @property
    def stored(self) -> dict[str, Any]:
        """The columns of a stored frame, in order."""
        return {HASH: pl.UInt64(), KEY: pl.Binary(), **self.order, **self.columns, **self.rule.marks}

    def stores_like(self, other: TableSchema) -> bool:
        """Return whether rows of another schema mean the same."""
        mine, theirs = (
            (type(each.rule), dict(each.order), dict(each.columns), each.rule.marks) for each in (self, other)
        )
        return mine == theirs

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns of a lookup's result after the key."""
        return (*self.order, *self.columns, *self.rule.shown)

    def unexpired(self, rows: pl.DataFrame, horizon: int | None) -> pl.DataFrame:
        """Return the rows that do not expire at or before a horizon, in µs."""
        if self.expires is None or horizon is None:
            return rows
        at = pl.lit(horizon, pl.Int64).cast(pl.Datetime("us", "UTC"))
        return rows.filter((self.expires <= at).fill_null(value=False).not_())


def described_order(schema: TableSchema) -> tuple[str, ...] | None:
    """Return the names of the order of a table that replaces or collects its entries.

    None for other rules. The rules of such tables are known from their columns, so that any process can merge them.
    """
    return tuple(schema.order) if isinstance(schema.rule, ReplaceRule | CollectRule) else None


def schema_of(columns: Mapping[str, pl.DataType], order: Sequence[str]) -> TableSchema:
    """Return the schema of a table from what is stored.

    The table replaces or collects its entries.
    """
    rule = ReplaceRule() if REMOVED in columns else CollectRule()
    marks = (HASH, KEY, *rule.marks, *order)
    others = {name: dtype for name, dtype in columns.items() if name not in marks}
    return TableSchema(others, rule, {name: columns[name] for name in order})
