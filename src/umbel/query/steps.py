"""Steps: the operations of a query plan, run in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from umbel.errors import InvalidValue, UmbelError, shortened
from umbel.expr import Expr
from umbel.expr.compiled import Compiled, in_error
from umbel.expr.evaluate import evaluate
from umbel.query.point_lookup import PointLookup
from umbel.query.rows import Plain, QueryRows, filled, is_same, series_of
from umbel.query.session import QuerySession
from umbel.types.dtypes import DType


def lengths(columns: Mapping[str, pl.Series]) -> npt.NDArray[np.int64]:
    """Return the number of keys in each row.

    Args:
        columns: one column of lists per key, by the feature's fully qualified name. A null list has no keys.

    Raises:
        InvalidValue: the lists of a row differ in length.
    """
    counted = {name: column.list.len().fill_null(0).cast(pl.Int64).to_numpy() for name, column in columns.items()}
    (first, expected), *others = counted.items()
    for name, found in others:
        if not np.array_equal(expected, found):
            row = int(np.flatnonzero(expected != found)[0])
            raise InvalidValue(
                f"lists of keys differ in length: in row {row}, {first} has {expected[row]} and {name} has {found[row]}",
                hint="give lists of one length in every row",
            )
    return expected


def flat(column: pl.Series) -> pl.Series:
    """Return the elements of all lists, concatenated."""
    return column.explode(empty_as_null=False, keep_nulls=False)


def regrouped(values: pl.Series, counts: npt.NDArray[np.int64]) -> pl.Series:
    """Return values regrouped into lists of their original lengths."""
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pl.Series(values.name, pl.from_arrow(pa.LargeListArray.from_arrays(offsets, values.to_arrow())))


NOW, IS_ERROR = "@now", "@error"
PARALLEL = 4096
"""Rows from which on expressions are computed in parallel: for fewer, to wake the threads takes longer."""


class Step(ABC):
    """One operation of a query plan."""

    __slots__ = ()

    is_rowwise: ClassVar[bool] = True
    """True if it computes each row from that row alone."""

    @abstractmethod
    def run(self, rows: QueryRows, session: QuerySession) -> None:
        """Compute features and add them to the rows."""


@dataclass(frozen=True, slots=True)
class Projection:
    """A field of a looked-up row, and the feature it becomes.

    Args:
        fqn: of the feature.
        field: of the dataset.
        dtype: the storage type of the feature.
        default: a column with one value that replaces nulls, or null elements of list lookups; None for no default.
    """

    fqn: str
    field: str
    dtype: pl.DataType
    default: pl.Series | None = None


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """Features read from one row of a dataset.

    Args:
        keys: the key features, in the order of the dataset's key fields.
        projections: the fields to read.
        is_list: True if the keys are lists, looked up element by element.
    """

    keys: tuple[str, ...]
    projections: tuple[Projection, ...]
    is_list: bool = False

    def points(self, rows: QueryRows) -> tuple[list[pl.Series], pl.Series, npt.NDArray[np.int64] | None]:
        """Return the keys to look up, the instants, and points per row.

        The points per row are None if every row has one.
        """
        columns = {name: rows.series(name) for name in self.keys}
        if not self.is_list:
            return list(columns.values()), rows.at, None
        counts = lengths(columns)
        owners = pl.Series(np.repeat(np.arange(rows.height), counts), dtype=pl.UInt32)
        return [flat(column) for column in columns.values()], rows.at.gather(owners), counts

    def take_points(self, found: PointLookup, rows: QueryRows) -> None:
        """Add the features read by a point lookup."""
        columns, add = found.columns, rows.add
        for each in self.projections:
            column = columns.get(each.field)
            if column is None:
                column = found.column(each.field)  # computed when it is read
            if isinstance(column, Plain) and is_same(column.dtype, each.dtype):
                add(each.fqn, column if each.default is None else column.filled(each.default))
            else:
                add(each.fqn, _projected(each, series_of(column), None))

    def take(self, found: pl.DataFrame, counts: npt.NDArray[np.int64] | None, rows: QueryRows) -> None:
        """Add the features read from the looked-up rows."""
        for projection in self.projections:
            rows.add(projection.fqn, _projected(projection, found.get_column(projection.field), counts))


def _projected(projection: Projection, column: pl.Series, counts: npt.NDArray[np.int64] | None) -> pl.Series:
    column = filled(column, projection.default)
    if counts is not None:
        column = regrouped(column, counts)
    return column if column.dtype == projection.dtype else column.cast(projection.dtype)


@dataclass(frozen=True, slots=True)
class LookupStep(Step):
    """One lookup on one dataset, for all features of a level.

    Args:
        dataset: its name.
        key_fields: its key fields.
        lookups: the rows to look up.
    """

    dataset: str
    key_fields: tuple[str, ...]
    lookups: tuple[KeyLookup, ...]

    def run(self, rows: QueryRows, session: QuerySession) -> None:
        point_lookup = self._point_lookups(rows, session)
        if point_lookup is not None:
            self.lookups[0].take_points(point_lookup, rows)
            return
        requested = [lookup.points(rows) for lookup in self.lookups]
        if len(requested) == 1:
            keys, at, _ = requested[0]
        else:
            keys = [pl.concat([keys[position] for keys, _, _ in requested]) for position in range(len(self.key_fields))]
            at = pl.concat([at for _, at, _ in requested])
        frame = pl.DataFrame([key.alias(name) for name, key in zip(self.key_fields, keys, strict=True)])
        found, _ = session.lookup(self.dataset, frame, at, self._fields)
        start = 0
        for lookup, (_, instants, counts) in zip(self.lookups, requested, strict=True):
            whole = len(instants) == found.height
            lookup.take(found if whole else found.slice(start, len(instants)), counts, rows)
            start += len(instants)

    @property
    def _fields(self) -> frozenset[str]:
        return frozenset(each.field for lookup in self.lookups for each in lookup.projections)

    def _point_lookups(self, rows: QueryRows, session: QuerySession) -> PointLookup | None:
        """Return the result of a point lookup, or None if unsupported."""
        lookup = self.lookups[0]
        if len(self.lookups) > 1 or lookup.is_list:
            return None
        keys = {field: rows.columns[name] for field, name in zip(self.key_fields, lookup.keys, strict=True)}
        return session.point_lookup(self.dataset, keys, rows.instants, self._fields)


@dataclass(frozen=True, slots=True)
class AliasStep(Step):
    """Copy another feature's value, with a default for nulls."""

    fqn: str
    source: str
    default: pl.Series

    def run(self, rows: QueryRows, session: QuerySession) -> None:
        rows.add(self.fqn, filled(rows.series(self.source), self.default))


@dataclass(frozen=True, slots=True)
class NamedExpression:
    """A feature computed by an expression.

    Args:
        fqn: of the feature.
        dtype: the declared type.
        expression: over columns with the names of the features.
        compiled: the same for Polars, with `NOW` as a column; None if parts of it are to be computed before.
    """

    fqn: str
    dtype: DType
    expression: Expr
    compiled: Compiled | None


@dataclass(frozen=True, slots=True)
class ExpressionStep(Step):
    """Evaluate expressions over the features of one featureset.

    Args:
        reads: the features read: bare name to column.
        types: their types by bare name.
        expressions: the features to compute.
        errors: a column that is true for rows in error; none if no row can be.
    """

    reads: Mapping[str, str]
    types: Mapping[str, DType]
    expressions: tuple[NamedExpression, ...]
    errors: tuple[pl.Expr, ...]

    @classmethod
    def of(
        cls, reads: Mapping[str, str], types: Mapping[str, DType], expressions: Sequence[NamedExpression]
    ) -> ExpressionStep:
        """Return the step of some expressions.

        One column for the errors of all costs less than expressions that raise: half the time of a small one.
        """
        failing = in_error(named.compiled for named in expressions if named.compiled is not None)
        return cls(reads, types, tuple(expressions), () if failing is None else (failing.alias(IS_ERROR),))

    def run(self, rows: QueryRows, session: QuerySession) -> None:
        known = [rows.series(fqn).alias(name) for name, fqn in self.reads.items()]
        frame = pl.DataFrame([rows.at.alias(NOW), *known])
        add_columns = frame.with_columns_seq if rows.height < PARALLEL else frame.with_columns
        try:
            computed = add_columns(*(self._column(named, frame) for named in self.expressions), *self.errors)
        except (pl.exceptions.PolarsError, UmbelError) as error:
            raise self._explained(frame, error) from error
        if self.errors and computed.get_column(IS_ERROR).any():
            raise self._explained(frame)
        for named in self.expressions:
            rows.add(named.fqn, _of_type(named, computed.get_column(named.fqn)))

    def _column(self, named: NamedExpression, frame: pl.DataFrame) -> pl.Expr | pl.Series:
        if named.compiled is not None:
            return named.compiled.value.alias(named.fqn)
        return evaluate(frame, {named.fqn: (named.expression, None)}, self.types, pl.col(NOW))[named.fqn]

    def _explained(self, frame: pl.DataFrame, error: Exception | None = None) -> InvalidValue:
        """Return the error of the first failing expression, with rows and reason.

        The expressions are evaluated again, one by one.
        """
        for named in self.expressions:
            try:
                evaluate(frame, {named.fqn: (named.expression, named.dtype)}, self.types, pl.col(NOW))
            except UmbelError as found:
                return InvalidValue(
                    f"feature {named.fqn} = {shortened(named.expression)}: {found.message}", hint=found.hint
                )
        return InvalidValue(
            f"failed to evaluate expression: {error}", hint="look for values it cannot take in the rows given"
        )


def _of_type(named: NamedExpression, column: pl.Series) -> pl.Series:
    declared = named.dtype.polars()
    checked = named.dtype.ingest(column if column.dtype == declared else column.cast(declared))
    if checked.errors:
        row, reason = min(checked.errors.items())
        raise InvalidValue(
            f"feature {named.fqn} = {shortened(named.expression)}: row {row}: {reason}",
            hint="make the expression give values of the feature's type",
        )
    return checked.values
