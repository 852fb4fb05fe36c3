"""Operators: the nodes of a plan. Each states its output schema and, as a kernel, how changes become changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from typing import Any

import polars as pl

from umbel.operators.columns import check_reserved
from umbel.operators.fingerprint import fingerprint
from umbel.operators.tables import State
from umbel.types.schema import Schema

NOT_IDENTITY = {"identity": False}


@dataclass(frozen=True, slots=True)
class Clock:
    """Event time as known to an operator's inputs, committed with the batch before.

    Args:
        watermark: nothing older is still expected.
        frontier: the largest event time seen over all keys.
        parents: the watermark of each input; empty when nothing is known of them.
        waits: whether there is a watermark, or will be one; else results that wait for it come out as others do.
    """

    watermark: datetime | None = None
    frontier: datetime | None = None
    parents: tuple[datetime | None, ...] = ()
    waits: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Operator(ABC):
    """A node of the plan. Its schema is computed, and its definition checked, when it is made.

    Args:
        parents: the nodes whose changes it reads.
        pipeline: `Dataset.pipeline`, for messages; no part of the identity.
    """

    parents: tuple[Operator, ...] = ()
    pipeline: str = field(default="", metadata=NOT_IDENTITY)
    schema: Schema = field(init=False, repr=False, metadata=NOT_IDENTITY)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", self.output(*(parent.schema for parent in self.parents)))
        check_reserved(self.schema.names, self.title)

    @abstractmethod
    def output(self, *inputs: Schema) -> Schema:
        """Return the schema of the result, or raise what is wrong with the definition."""

    @property
    def parameters(self) -> dict[str, Any]:
        """What distinguishes it from others of its class, apart from its parents."""
        own = (f.name for f in fields(self) if f.name != "parents" and f.metadata.get("identity", True))
        return {name: getattr(self, name) for name in own}

    @cached_property
    def id(self) -> str:
        """16 hexadecimal characters: equal for equal definitions on equal parents, in every process."""
        return fingerprint(type(self).__name__, self.parameters, tuple(parent.id for parent in self.parents))

    @property
    def inserts_only(self) -> bool:
        """Whether no retraction can come out."""
        return False

    @property
    def delay(self) -> int | None:
        """How far before the watermark of its inputs its changes may still reach, in µs; None when nothing bounds that."""
        return 0

    @property
    def is_terminal(self) -> bool:
        """Whether nothing may follow (its value depends on the instant it is asked for)."""
        return False

    @property
    def missing(self) -> Mapping[str, Any]:
        """What a lookup shows for a key it does not find, by column; the others are null."""
        return {}

    @property
    def kind(self) -> str:
        """Its name in plans."""
        return type(self).__name__.lower()

    @property
    def verb(self) -> str:
        """What users call it."""
        return self.kind

    @property
    def subject(self) -> str:
        """What it holds, for messages: a dataset's name, or `filter of X`."""
        return f"{self.verb} of {self.parents[0].subject}" if self.parents else self.verb

    @property
    def title(self) -> str:
        """What it is and for which pipeline, for messages."""
        return f"{self.verb} in pipeline '{self.pipeline}'" if self.pipeline else self.verb


@dataclass(frozen=True, eq=False, kw_only=True)
class RowWise(Operator):
    """An operator that looks at one row at a time: no exchange, no state.

    With several parents it is applied to the changes of each.
    """

    @abstractmethod
    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the changes that `rows` become; `_at`, `_weight` and `_seq` pass through."""

    @property
    def inserts_only(self) -> bool:
        return all(parent.inserts_only for parent in self.parents)


@dataclass(frozen=True, eq=False, kw_only=True)
class Keyed(Operator):
    """An operator whose rows are exchanged by key and which keeps state per shard."""

    @abstractmethod
    def exchange(self) -> tuple[tuple[str, ...], ...]:
        """Return, for each parent, the columns whose encoded value routes its rows to a shard."""

    @property
    def is_timed(self) -> bool:
        """Whether event time alone changes its results, so that `tick` has something to do."""
        return False

    @property
    def is_final(self) -> bool:
        """Whether its results wait for the watermark."""
        return False

    @property
    def looked_up(self) -> tuple[int, ...]:
        """The places of the parents whose rows it looks up in another operator's timeline."""
        return ()

    def partial(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Combine rows before the exchange."""
        return rows

    @abstractmethod
    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        """Return the changes that one batch causes in one shard.

        Args:
            changes: one frame of changes for each parent; it may be empty.
            state: this operator's tables in the shard.
            clock: of this operator's inputs.
        """

    def tick(self, state: State, clock: Clock) -> pl.DataFrame:
        """Fire the timers due at the frontier."""
        return self.schema.empty()
