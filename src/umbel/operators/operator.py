"""Operators: the nodes of a plan.

Each defines its output schema and, as a kernel, the output changes for its input changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from itertools import chain
from keyword import kwlist
from math import inf
from typing import Any, ClassVar, cast

import polars as pl

from umbel.errors import InvalidType, Terminal, UmbelError, line_in, text_of
from umbel.functions.fingerprint import fingerprint
from umbel.functions.user_function import UserFunction
from umbel.operators.columns import check_known, check_reserved
from umbel.plugins import Registry, is_extension, is_own
from umbel.state.port import OldState
from umbel.state.runs.rules import TableSchema
from umbel.state.tables import State
from umbel.types.schema import CHANGE_COLUMNS, WEIGHT, Schema

NOT_IDENTITY = {"identity": False}
ALWAYS, NEVER = -inf, inf
"""The instants, in µs, from which on something is complete that was always, or never will be."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The event time of an operator's inputs, as committed with the previous batch.

    Args:
        watermark: nothing older is still expected.
        stream_time: the largest event time seen over all keys.
        parents: the watermark of each input; empty when unknown.
        waits: True if there is a watermark, or will be one; otherwise final results are emitted like the others.
    """

    watermark: datetime | None = None
    stream_time: datetime | None = None
    parents: tuple[datetime | None, ...] = ()
    waits: bool = False


Partition = tuple[str, ...] | None
"""Columns by which rows are distributed over shards, in the order in which they are encoded."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Operator(ABC):
    """A node of the plan.

    Its schema is computed, and its definition checked, when it is made.

    Args:
        parents: the nodes whose changes it reads.
        pipeline: `Dataset.pipeline`, for messages; no part of the identity.
    """

    parents: tuple[Operator, ...] = ()
    pipeline: str = field(default="", metadata=NOT_IDENTITY)
    schema: Schema = field(init=False, repr=False, metadata=NOT_IDENTITY)

    keeps_values: ClassVar[bool] = False
    """True if the columns that the output has in common with the (first) input have the values of the input's row."""
    moves_rows: ClassVar[bool] = False
    """True if rows may get other timestamps than they had."""
    is_internal: ClassVar[bool] = False
    """True if umbel adds it to plans, and pipelines have no method of its name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", self.output(*(parent.schema for parent in self.parents)))
        check_reserved(self.schema.names, self.title)

    @abstractmethod
    def output(self, *inputs: Schema) -> Schema:
        """Return the schema of the result, or raise the errors of the definition."""

    def check_use(self) -> None:  # noqa: B027  most have nothing to check
        """Check its definition where a pipeline uses it, not where it is loaded."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The fields that are part of its identity, apart from its parents."""
        own = (f.name for f in fields(self) if f.name != "parents" and f.metadata.get("identity", True))
        return {name: getattr(self, name) for name in own}

    @cached_property
    def id(self) -> str:
        """The fingerprint of its definition and parents, 16 hexadecimal characters.

        It is equal for equal definitions on equal parents, in every process.
        """
        return fingerprint(self.identity, self.parameters, tuple(parent.id for parent in self.parents))

    @property
    def inserts_only(self) -> bool:
        """True if it never emits a retraction."""
        return False

    def partition(self, inputs: tuple[Partition, ...]) -> Partition:
        """Return the columns whose value determines the shard of an output row.

        None if nothing is known. A reader that is exchanged by the same columns runs in the same stage.

        Args:
            inputs: the same of each parent.
        """
        del inputs
        return None

    @property
    def delay(self) -> int | None:
        """The maximum lag of its changes behind the watermark of its inputs, in µs.

        None if it is unbounded.
        """
        return 0

    def complete_since(self, inputs: tuple[float, ...]) -> float:
        """Return the instant since which its result is right, given incomplete inputs.

        Args:
            inputs: of each input, the instant in µs since which it has all changes; a keyed one has the rows of then, too.
        """
        del inputs
        return NEVER

    def columns_read(self, needed: AbstractSet[str]) -> AbstractSet[str] | None:
        """Return the input columns from which some of its output columns are computed.

        None if it may read any; columns of changes are always read.

        Args:
            needed: the output columns; none are needed of an operator with state.
        """
        del needed
        return None

    def checked(self, made: object) -> pl.DataFrame:
        """Return changes as computed, those of another package with the schema's columns.

        Raises:
            InvalidType: a class that is not umbel's returned something else than changes of its schema.
        """
        if is_own(type(self)):
            return cast("pl.DataFrame", made)
        hint = "return changes with the columns of `self.schema.changes()`; `self.schema.empty()` for none"
        if not isinstance(made, pl.DataFrame):
            raise InvalidType(f"{self.title}: it returned {type(made).__name__}, not a frame of Polars", hint=hint)
        if wrong := [*_mistyped(made, self.schema)] or [*_without_value(made, self.schema)]:
            raise InvalidType(f"{self.title}: it returned wrong changes: {'; '.join(wrong)}", hint=hint)
        return made.select(list(self.schema.changes()))

    @property
    def is_terminal(self) -> bool:
        """True if no operator may follow, because its value depends on the queried instant."""
        return False

    @property
    def missing(self) -> Mapping[str, Any]:
        """The values of a lookup of an unknown key, by column; the others are null."""
        return {}

    @property
    def identity(self) -> str:
        """The name of its computation in fingerprints."""
        return type(self).__name__

    @property
    def kind(self) -> str:
        """Its name in plans."""
        return type(self).__name__.lower()

    @property
    def verb(self) -> str:
        """Its name in the user API."""
        return self.kind

    @property
    def subject(self) -> str:
        """Its content, for messages: a dataset's name, or `filter of X`."""
        return f"{self.verb} of {self.parents[0].subject}" if self.parents else self.verb

    @property
    def title(self) -> str:
        """Its name and pipeline, for messages."""
        return f"{self.verb} in pipeline '{self.pipeline}'" if self.pipeline else self.verb


def _mistyped(made: pl.DataFrame, schema: Schema) -> Iterator[str]:
    """Describe the columns that are missing, or have another type than in the schema."""
    for name, dtype in schema.changes().items():
        if name not in made.columns:
            yield f"column '{name}' is missing"
        elif made.schema[name] != dtype:
            yield f"column '{name}' is of type {made.schema[name]}, not {dtype}"


def _without_value(made: pl.DataFrame, schema: Schema) -> Iterator[str]:
    """Describe the columns with nulls that cannot have any, in rows that are inserted."""
    inserted = made.filter(pl.col(WEIGHT) > 0)
    required = [name for name, dtype in schema.dtypes.items() if not dtype.is_optional]
    for frame, names in ((made, list(CHANGE_COLUMNS)), (inserted, required)):
        yield from (f"column '{name}' has a null" for name in names if frame[name].null_count())


METHODS = frozenset({"aggregate", "building", "groupby", "join", "operator", "schema", "then"})
"""Names in use on the rows of a pipeline that no class of operators has."""

OPERATORS = Registry("operator", "umbel.operators", Operator, METHODS | frozenset(map(str.lower, kwlist)))


@dataclass(frozen=True, eq=False, kw_only=True)
class RowWise(Operator):
    """A stateless operator that maps one row at a time, without an exchange.

    With several parents it is applied to the changes of each.
    """

    def partition(self, inputs: tuple[Partition, ...]) -> Partition:
        found = inputs[0] if self.keeps_values and len(inputs) == 1 else None
        return None if found is None or not set(found) <= {*self.schema.names} else found

    def source_of(self, column: str) -> str | None:
        """Return the input column whose values an output column has, row by row.

        None if it has others. With several parents it is a column of each of them.
        """
        return column if self.keeps_values else None

    @abstractmethod
    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the output changes for `rows`; `_at`, `_weight` and `_seq` pass through."""

    def applied(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the output changes for `rows`, checked."""
        return self.checked(self.apply(rows))

    def complete_since(self, inputs: tuple[float, ...]) -> float:
        return max(inputs)

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        """The user functions it calls."""
        return ()

    @cached_property
    def code_id(self) -> str:
        """The fingerprint of its computation, 16 hexadecimal characters.

        It is equal for the same computation on any input.
        """
        return fingerprint(self.identity, self.parameters)

    @property
    def inserts_only(self) -> bool:
        return all(parent.inserts_only for parent in self.parents)


@dataclass(frozen=True, eq=False, kw_only=True)
class Keyed(Operator):
    """A stateful operator whose rows are exchanged by key, with state per shard."""

    takes_truncations: ClassVar[bool] = False
    """True if changes with the weight `TRUNCATION` may arrive, which go to every shard."""

    @abstractmethod
    def exchange(self) -> tuple[tuple[str, ...], ...]:
        """Return, for each parent, the columns whose encoded value routes its rows to a shard."""

    def check_use(self) -> None:
        """Check that the columns of `exchange` are there.

        Raises:
            InvalidType: they are not, or it returns something else.
        """
        if is_own(type(self)):
            return
        found: object = self.exchange()
        if (
            not isinstance(found, tuple)
            or len(found) != len(self.parents)
            or any(not isinstance(each, tuple) for each in found)
        ):
            raise InvalidType(
                f"{self.title}: exchange() returned {found!r:.100}, not a tuple of columns for each of its inputs",
                hint='return (("user",),) for one input with the key "user"',
            )
        for columns, parent in zip(found, self.parents, strict=True):
            check_known(columns, parent.schema.names, f"{self.title}: exchange()")

    def partition(self, inputs: tuple[Partition, ...]) -> Partition:
        return self.exchange()[0] if self.keeps_values else None

    @property
    def is_timed(self) -> bool:
        """True if event time alone changes its results, so that `tick` may emit changes."""
        return False

    @property
    def is_final(self) -> bool:
        """True if its results wait for the watermark."""
        return False

    @property
    def looked_up(self) -> tuple[int, ...]:
        """The indices of the parents whose rows it looks up in another operator's version history."""
        return ()

    @property
    def folded(self) -> Mapping[str, TableSchema]:
        """The tables whose rows are merged by functions of its own, by their names."""
        return {}

    def partial(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Pre-aggregate rows before the exchange."""
        return rows

    @abstractmethod
    def step(self, changes: tuple[pl.DataFrame, ...], state: State, clock: Clock) -> pl.DataFrame:
        """Return the changes caused by one batch in one shard.

        Args:
            changes: one frame of changes for each parent; it may be empty.
            state: this operator's tables in the shard.
            clock: of this operator's inputs.
        """

    def called(self, kernel: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Return the result of one of its methods.

        Raises:
            Terminal: code of another package raised an exception.
            OldState: it reads its state with other columns than it has.
        """
        try:
            return kernel()
        except OldState as error:
            raise error.restated(f"{self.title}: {error.message}", hint=error.hint) from error
        except UmbelError:
            raise
        except Exception as error:
            values = (self, *chain.from_iterable(each for each in self.parameters.values() if isinstance(each, tuple)))
            foreign = next((type(each) for each in values if is_extension(type(each))), None)
            if foreign is None:
                raise
            name = f"{foreign.__module__}:{foreign.__qualname__}"
            raise Terminal(
                f"{self.title}: {type(error).__name__}: {text_of(error)}",
                where=line_in(error, foreign.__module__),
                hint=f"mend {name} and install it: a worker that is started again goes on with the same rows",
            ) from error

    def tick(self, state: State, clock: Clock) -> pl.DataFrame:
        """Fire the timers due at the stream time."""
        return self.schema.empty()
