"""Steps: what a resolved query does, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from umbel.errors import InvalidValue, UmbelError
from umbel.expr import Expr
from umbel.expr.evaluate import evaluate
from umbel.query.few import Few
from umbel.query.keylists import flat, lengths, regrouped
from umbel.query.rows import Plain, Rows, filled, is_same, series_of
from umbel.query.session import Session
from umbel.types.dtypes import DType

NOW = "@now"


class Step(ABC):
    """A part of a query."""

    __slots__ = ()

    is_rowwise: ClassVar[bool] = True
    """Whether it computes each row from that row alone."""

    @abstractmethod
    def run(self, rows: Rows, session: Session) -> None:
        """Compute features and add them to the rows."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A field of the row that was looked up, and the feature it becomes.

    Args:
        fqn: of the feature.
        field: of the dataset.
        dtype: the storage type of the feature.
        default: a column of one value, instead of null; None for none. For list lookups, instead of null elements.
    """

    fqn: str
    field: str
    dtype: pl.DataType
    default: pl.Series | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """Features that are read from one row of a dataset.

    Args:
        keys: the features that hold the key, in the order of the dataset's key fields.
        picks: what is read.
        is_list: whether the keys are lists, looked up element by element.
    """

    keys: tuple[str, ...]
    picks: tuple[Pick, ...]
    is_list: bool = False

    def points(self, rows: Rows) -> tuple[list[pl.Series], pl.Series, npt.NDArray[np.int64] | None]:
        """Return the keys to look up, the instants, and how many belong to each row when it is not one."""
        columns = {name: rows.series(name) for name in self.keys}
        if not self.is_list:
            return list(columns.values()), rows.at, None
        counts = lengths(columns)
        owners = pl.Series(np.repeat(np.arange(rows.height), counts), dtype=pl.UInt32)
        return [flat(column) for column in columns.values()], rows.at.gather(owners), counts

    def take_few(self, found: Few, rows: Rows) -> None:
        """Add the features read from few rows that were found."""
        for pick in self.picks:
            column = found.column(pick.field)
            if isinstance(column, Plain) and is_same(column.dtype, pick.dtype):
                rows.add(pick.fqn, column.filled(pick.default))
            else:
                rows.add(pick.fqn, _picked(pick, series_of(column), None))

    def take(self, found: pl.DataFrame, counts: npt.NDArray[np.int64] | None, rows: Rows) -> None:
        """Add the features read from the rows that were found."""
        for pick in self.picks:
            rows.add(pick.fqn, _picked(pick, found.get_column(pick.field), counts))


def _picked(pick: Pick, column: pl.Series, counts: npt.NDArray[np.int64] | None) -> pl.Series:
    column = filled(column, pick.default)
    if counts is not None:
        column = regrouped(column, counts)
    return column if column.dtype == pick.dtype else column.cast(pick.dtype)


@dataclass(frozen=True, slots=True)
class LookupStep(Step):
    """One lookup on one dataset for all the features read from it at this point.

    Args:
        dataset: its name.
        key_fields: its key fields.
        probes: the rows to find.
    """

    dataset: str
    key_fields: tuple[str, ...]
    probes: tuple[Probe, ...]

    def run(self, rows: Rows, session: Session) -> None:
        few = self._few(rows, session)
        if few is not None:
            self.probes[0].take_few(few, rows)
            return
        asked = [probe.points(rows) for probe in self.probes]
        if len(asked) == 1:
            keys, at, _ = asked[0]
        else:
            keys = [pl.concat([keys[place] for keys, _, _ in asked]) for place in range(len(self.key_fields))]
            at = pl.concat([at for _, at, _ in asked])
        frame = pl.DataFrame([key.alias(name) for name, key in zip(self.key_fields, keys, strict=True)])
        found, _ = session.lookup(self.dataset, frame, at)
        start = 0
        for probe, (_, instants, counts) in zip(self.probes, asked, strict=True):
            whole = len(instants) == found.height
            probe.take(found if whole else found.slice(start, len(instants)), counts, rows)
            start += len(instants)

    def _few(self, rows: Rows, session: Session) -> Few | None:
        """Return the rows that are looked up, where there is a short way to them."""
        probe = self.probes[0]
        if len(self.probes) > 1 or probe.is_list:
            return None
        return session.few(self.dataset, [rows.columns[name] for name in probe.keys], rows.instants)


@dataclass(frozen=True, slots=True)
class AliasStep(Step):
    """Another feature's value, with a default."""

    fqn: str
    source: str
    default: pl.Series

    def run(self, rows: Rows, session: Session) -> None:
        rows.add(self.fqn, filled(rows.series(self.source), self.default))


@dataclass(frozen=True, slots=True)
class Formula:
    """A feature computed by an expression.

    Args:
        fqn: of the feature.
        dtype: declared.
        expression: over columns named as the features.
        value: the same for Polars, where `NOW` is a column.
    """

    fqn: str
    dtype: DType
    expression: Expr
    value: pl.Expr


@dataclass(frozen=True, slots=True)
class ExpressionStep(Step):
    """Expressions over the features of one featureset.

    Args:
        reads: the features read: bare name to the column that holds them.
        types: their types by bare name.
        formulas: what is computed.
    """

    reads: Mapping[str, str]
    types: Mapping[str, DType]
    formulas: tuple[Formula, ...]

    def run(self, rows: Rows, session: Session) -> None:
        known = [rows.series(fqn).alias(name) for name, fqn in self.reads.items()]
        frame = pl.DataFrame([rows.at.alias(NOW), *known])
        try:
            computed = frame.with_columns(formula.value.alias(formula.fqn) for formula in self.formulas)
        except (pl.exceptions.PolarsError, UmbelError) as error:
            raise self._explained(frame, error) from error
        for formula in self.formulas:
            rows.add(formula.fqn, _of_type(formula, computed.get_column(formula.fqn)))

    def _explained(self, frame: pl.DataFrame, error: Exception) -> InvalidValue:
        """Evaluate again, one by one and slowly, to say which expression failed on which rows and why."""
        for formula in self.formulas:
            try:
                evaluate(frame, {formula.fqn: (formula.expression, formula.dtype)}, self.types, pl.col(NOW))
            except UmbelError as found:
                return InvalidValue(f"feature {formula.fqn} = {formula.expression}: {found.message}", hint=found.hint)
        return InvalidValue(
            f"failed to evaluate expression: {error}", hint="look for values it cannot take in the rows given"
        )


def _of_type(formula: Formula, column: pl.Series) -> pl.Series:
    declared = formula.dtype.polars()
    checked = formula.dtype.ingest(column if column.dtype == declared else column.cast(declared))
    if checked.faults:
        row, reason = min(checked.faults.items())
        raise InvalidValue(
            f"feature {formula.fqn} = {formula.expression}: row {row}: {reason}",
            hint="make the expression give values of the feature's type",
        )
    return checked.values
