"""Work for isolated children of a worker: an operator or preproc function over rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from umbel.api.secrets import provide_secrets
from umbel.functions.computed import ByFunction
from umbel.isolation import child
from umbel.operators.leaf import Leaf
from umbel.operators.operator import RowWise
from umbel.types.dtypes import Checked, DType

MODULES = (
    "pandas",
    "umbel.runtime.isolated",
    "umbel.types.pandas",
    "umbel.operators.transform",
    "umbel.operators.assign",
)
"""Modules loaded in the fork server, before children are forked."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A frame to be sent to a child process.

    Columns of Python objects are sent as lists beside it.

    Args:
        frame: the columns Polars has types for.
        objects: the others.
        names: of all columns, in order.
    """

    frame: pl.DataFrame
    objects: Mapping[str, list[Any]]
    names: tuple[str, ...]

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Rows:
        """Return a frame ready to be sent."""
        objects = {name: frame[name].to_list() for name, dtype in frame.schema.items() if dtype == pl.Object}
        return cls(frame.drop(list(objects)), objects, tuple(frame.columns))

    @property
    def arrived(self) -> pl.DataFrame:
        """The frame, reassembled in the child."""
        if not self.objects:
            return self.frame
        columns = [pl.Series(name, values, dtype=pl.Object) for name, values in self.objects.items()]
        return (pl.DataFrame(columns).hstack(self.frame) if self.frame.width else pl.DataFrame(columns)).select(
            self.names
        )


@dataclass(frozen=True, slots=True)
class Application:
    """An operator, callable with rows."""

    operator: RowWise

    @classmethod
    def of(cls, operator: RowWise) -> Application:
        """Return an operator with its inputs replaced by leaves of the same schema."""
        inputs = tuple(Leaf(dataset="", version=0, columns=each.schema) for each in operator.parents)
        return cls(replace(operator, parents=inputs))

    def __call__(self, rows: Rows) -> pl.DataFrame:
        _listen()
        return self.operator.applied(rows.arrived)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A function of preproc or `where`, callable with rows.

    Args:
        computed: the function.
        columns: the types of the columns that have one.
        declared: the type of the values.
    """

    computed: ByFunction
    columns: Mapping[str, DType]
    declared: DType

    def __call__(self, rows: Rows) -> tuple[pl.Series, dict[int, str]]:
        _listen()
        found = self.judged(rows.arrived)
        return found.values, found.errors

    def judged(self, rows: pl.DataFrame) -> Checked:
        """Return the values and the errors of invalid ones.

        Raises the function's own exceptions.
        """
        return self.declared.ingest(self.computed.raw_values(rows, self.columns))


class _ForwardedSecrets:
    def get(self, name: str) -> str:
        return str(child.ask(name))


def _listen() -> None:
    provide_secrets(_ForwardedSecrets())
