"""Transform: rows computed by a user function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from umbel.errors import InvalidType, InvalidValue, Terminal
from umbel.functions.computed import blamed, called, in_order
from umbel.functions.user_function import UserFunction
from umbel.operators.columns import quoted
from umbel.operators.operator import NEVER, RowWise
from umbel.types.dtypes import Datetime, DType
from umbel.types.schema import AT, CHANGE_COLUMNS, Schema


class WrongColumns(Terminal, ValueError):
    """A user function returned other columns than declared."""

    code = "wrong-columns"


@dataclass(frozen=True, eq=False, kw_only=True)
class Transform(RowWise):
    """Replace each row by the result of `function`.

    Args:
        function: gets a pandas frame, returns one with as many rows.
        columns: all columns it returns with their types; empty when it leaves the schema unchanged.

    >>> show(lambda orders: orders.transform(lambda df: df.assign(user=df["user"].str.upper())), Order)
    user  amount  coupon  at
    ANN   10      1       09:00
    BOB   7       None    09:30
    ANN   5       None    10:15
    ANN   5       None    10:15
    """

    function: UserFunction
    columns: tuple[tuple[str, DType], ...] = ()

    moves_rows: ClassVar[bool] = True

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        if not self.columns:
            return rows
        declared = dict(self.columns)
        if not isinstance(declared.get(rows.timestamp), Datetime):
            raise InvalidType(
                f"{self.title}: schema must have the timestamp '{rows.timestamp}' as a datetime",
                hint="list all columns of the result in schema",
            )
        for name, dtype in rows.keys:
            if declared.get(name) != dtype:
                found = declared.get(name, "missing")
                raise InvalidType(
                    f"{self.title}: schema must have key '{name}' as {dtype}, found {found}",
                    hint="keys keep their types: list them as they are",
                )
        fixed = (rows.timestamp, *rows.key_names)
        return rows.with_values(item for item in self.columns if item[0] not in fixed)

    def complete_since(self, inputs: tuple[float, ...]) -> float:
        del inputs
        return NEVER  # the function may move any row to any instant

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        return (self.function,)

    def apply(self, rows: pl.DataFrame) -> pl.DataFrame:
        if rows.is_empty():
            return self.schema.empty()
        with blamed(f"transform function {self.function.name} for pipeline {self.pipeline}"):
            made = self._checked(called(self.function, rows, self.parents[0].schema.dtypes), rows.height)
            made = self._in_place(made, rows)
            return self._moved(made.hstack(rows.select(*CHANGE_COLUMNS)), rows)

    def _in_place(self, made: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """Put rows that came back in another order with a new index where they were.

        They are recognised by key and timestamp. Weights and instants of changes would go to other rows, where some may be
        retractions.
        """
        fixed = (*self.schema.key_names, self.schema.timestamp)
        found, before = made.select(fixed), rows.select(fixed)
        if self.inserts_only or found.equals(before):
            return made
        have, had = found.hash_rows(), before.hash_rows()
        if not have.sort().equals(had.sort()):
            return made
        if had.is_duplicated().any():
            raise InvalidValue(
                "the rows came back in another order, with a new index",
                hint="keep the frame's index (no reset_index), or the order of the rows",
            )
        return made[have.arg_sort()][had.arg_sort().arg_sort()]

    def _moved(self, made: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        """Move changes that take effect at their row's timestamp to its new timestamp."""
        own = rows[self.parents[0].schema.timestamp] == rows[AT]
        return made.with_columns(pl.when(own).then(pl.col(self.schema.timestamp)).otherwise(pl.col(AT)).alias(AT))

    def _checked(self, made: Any, height: int) -> pl.DataFrame:
        import pandas as pd

        from umbel.types.pandas import from_pandas

        if not isinstance(made, pd.DataFrame):
            found = f"{type(made).__module__.partition('.')[0]}.{type(made).__name__}".removeprefix("builtins.")
            raise InvalidType(f"expected a pandas.DataFrame, found {found}", hint="return the changed frame")
        self._check_columns([str(name) for name in made.columns])
        if len(made) != height:
            raise InvalidType(
                f"expected as many rows as came in, {height}, found {len(made)}",
                hint="use filter or explode to change the number of rows",
            )
        return from_pandas(_decoded(in_order(made), self.schema.polars()), self.schema.dtypes).select(self.schema.names)

    def _check_columns(self, found: list[str]) -> None:
        expected = self.schema.names
        if sorted(found) == sorted(expected):
            return
        remedy = "return the columns of schema, no more and no fewer"
        hint = remedy if self.columns else "provide schema= with all columns and their types"
        raise WrongColumns(
            f"Error in {self.title}: function {self.function.name} returned columns {quoted(sorted(found))}, "
            f"expected {quoted(sorted(expected))}",
            where=self.function.where or None,
            hint=hint,
        )


def _decoded(made: Any, types: Mapping[str, pl.DataType]) -> Any:
    """Return a frame with the bytes in text columns decoded as UTF-8."""
    texts = [name for name, dtype in types.items() if dtype == pl.String and made[name].dtype == object]
    return made.assign(**{name: made[name].map(_text) for name in texts}) if texts else made


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
