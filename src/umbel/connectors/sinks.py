"""The write interface of a sink: changes and their position, written in one transaction.

A sink's position is kept where its changes go, in the same transaction. So after a crash the destination itself says what it has,
and nothing is written twice or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from umbel.errors import InvalidValue, NotSupported, Transient
from umbel.types.schema import Schema

PlainRow = Mapping[str, Any]
"""A row as JSON values by column."""


@dataclass(frozen=True, slots=True, order=True)
class SinkPosition:
    """The changes that a destination has.

    Args:
        batch: all changes of the batches up to this one, -2 for none; a backfill is batch -1.
        rows: and so many of the next batch.
        without: changes among the last ones that are left out, since their keys were erased.
    """

    batch: int = -2
    rows: int = 0
    without: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        """The name of the changes that end here; with keys erased meanwhile they are others."""
        return f"{self.batch}-{self.rows}" + (f"-without-{self.without}" if self.without else "")


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of one row.

    Args:
        key: the values of the key columns, None for a dataset without keys.
        before: the row before, None for an insertion.
        after: the row after, None for a deletion.
        at: its event time, in µs since the epoch.
    """

    key: PlainRow | None
    before: PlainRow | None
    after: PlainRow | None
    at: int

    @property
    def op(self) -> str:
        """Its kind in Debezium's words: c(reate), u(pdate) or d(elete)."""
        return "d" if self.after is None else "c" if self.before is None else "u"

    @property
    def alone(self) -> RowChange | None:
        """The same change without the row before, None if there is none, or no key.

        A row that a destination has refused is the row before of the next change of its key.
        """
        return None if self.key is None or self.before is None else replace(self, before=None)


class RowsRefused(InvalidValue):
    """A destination refuses the values of a row.

    The table, topic or endpoint itself is as it should be.
    """

    depends_on_others = False
    """True if it may accept the row once it has others of the same transaction."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A change that a destination refuses.

    Args:
        number: its place among the changes of the transaction, from 0.
        change: the change.
        error: the reason.
    """

    number: int
    change: RowChange
    error: RowsRefused


class Isolation(Protocol):
    """The record of what is refused in a transaction, kept by the deployment."""

    def settle(self, refused: Sequence[Refusal], accepted: Sequence[RowChange]) -> None:
        """Note what is refused; called once, right before the transaction is committed.

        Raises:
            NoneAccepted: it seems to be the destination that is wrong, so that nothing may be committed.
        """

    def divide(self, name: str) -> None:
        """Note that a refused request is sent in two parts; for destinations without a position."""

    def is_divided(self, name: str) -> bool:
        """Return whether that was noted."""


class NoneAccepted(InvalidValue):
    """A destination refuses so many rows that it is taken to be wrong itself."""

    refused: Sequence[Refusal] = ()


ENOUGH = 1000
"""Refused rows, with none accepted, after which a destination is taken to be wrong itself."""


def divided(
    changes: Sequence[RowChange], attempt: Callable[[int, Sequence[RowChange]], None]
) -> tuple[list[tuple[int, Sequence[RowChange]]], list[Refusal]]:
    """Return the ranges of changes that are accepted, with their places, and the refused changes.

    Args:
        changes: of a transaction.
        attempt: writes a range of them, with the place of the first, and raises `RowsRefused`.

    Raises:
        NoneAccepted: many rows are refused, and none is accepted.
    """
    accepted, refused, ranges = list[tuple[int, Sequence[RowChange]]](), list[Refusal](), [(0, len(changes))]
    while ranges:
        begin, end = ranges.pop()
        try:
            attempt(begin, changes[begin:end])
        except RowsRefused as error:
            if end - begin == 1:
                refused.append(Refusal(begin, changes[begin], error))
            else:
                half = (begin + end) // 2
                ranges += [(half, end), (begin, half)]  # the first one is taken next
        else:
            accepted.append((begin, changes[begin:end]))
        if len(refused) >= ENOUGH and not accepted:
            raise none_accepted(refused)
    return accepted, refused


def none_accepted(refused: Sequence[Refusal]) -> NoneAccepted:
    """Return the error of changes that are all refused, or nearly all."""
    error = NoneAccepted(refused[0].error.message, hint=refused[0].error.hint)
    error.refused = refused
    return error


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The part of a sink's definition that its writer needs.

    Args:
        id: of the sink; unique, and the same after a restart.
        dataset: the name of the dataset.
        schema: of the dataset.
        renames: the sink's column name by the dataset's.
    """

    id: str
    dataset: str
    schema: Schema
    renames: Mapping[str, str]

    def column(self, name: str) -> str:
        """Return the sink's name of a column."""
        return self.renames.get(name, name)


class SinkWriter(Protocol):
    """Writes the changes of one dataset to one destination.

    A writer that failed is closed, and another one is made.
    """

    keeps_position: ClassVar[bool] = True
    """False if the destination has no place for the position.

    It is kept by the deployment then. Before changes are written it is noted which, so that after a crash the very same are
    written again, under the same position.
    """

    made: str = ""
    """Identifies the table or topic that `position` found among all of its name there ever were; empty if unknown."""

    isolates: ClassVar[bool] = False
    """True if `write` raises `RowsRefused`, and `write_accepted` writes the other rows."""

    def position(self) -> SinkPosition:
        """Return the position of the destination, after refusing further writes of earlier writers.

        Raises:
            Transient: the destination does not answer.
        """

    def write(self, changes: Sequence[RowChange], position: SinkPosition) -> None:
        """Write changes and the position behind them in one transaction.

        Raises:
            Transient: it failed; whether it took effect is what the next writer's `position` says.
            RowsRefused: a row is refused for its values; nothing was written, or what was is known to `write_accepted`.
        """

    def write_accepted(self, changes: Sequence[RowChange], position: SinkPosition, isolation: Isolation) -> None:
        """Write changes without those that the destination refuses, after `write` has raised `RowsRefused`.

        Args:
            changes: the same as those of `write`.
            position: likewise.
            isolation: is to settle what is refused before it takes effect.

        Raises:
            Transient: as `write`.
            NoneAccepted: nothing was written.
        """
        raise NotSupported("this writer does not write a part of the changes", hint="isolates = False")

    def close(self) -> None:
        """Release connections."""


def write_after_trial(
    writer: SinkWriter,
    found: tuple[Sequence[tuple[int, Sequence[RowChange]]], Sequence[Refusal]],
    position: SinkPosition,
    isolation: Isolation,
) -> None:
    """Write what a trial has accepted, in one transaction.

    Args:
        writer: to the destination.
        found: the accepted ranges of changes with their places, and the refused changes, of `divided`.
        position: behind all of them.
        isolation: is to settle what is refused.

    Raises:
        Transient: it failed, or the destination has begun to refuse what it accepted in the trial.
        NoneAccepted: nothing was written.
    """
    ranges, refused = found
    accepted = [change for _, part in ranges for change in part]
    isolation.settle(refused, accepted)
    try:
        writer.write(accepted, position)
    except RowsRefused as error:
        raise Transient(error.message) from None
