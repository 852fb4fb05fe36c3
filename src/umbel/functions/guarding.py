"""The guard around user code: rejects failing rows instead of failing the batch.

Without a guard, an exception of a function reaches the caller: this is the case in process, where users want to see it. A worker
sets a guard, which removes the rows that a function fails on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import polars as pl

    from umbel.functions.computed import ByFunction, Columns
    from umbel.operators.operator import RowWise
    from umbel.types.dtypes import Checked, DType


class Guard(Protocol):
    """Calls user code so that it fails only for single rows."""

    def apply(self, operator: RowWise, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the output changes of the rows that the operator does not fail on."""

    def judge(self, computed: ByFunction, rows: pl.DataFrame, columns: Columns, declared: DType) -> Checked:
        """Return one value per row, and the errors of rejected rows."""


_current: ContextVar[Guard | None] = ContextVar("umbel_guard", default=None)


def guard() -> Guard | None:
    """Return the guard of the current context; None without one."""
    return _current.get()


@contextmanager
def guarded(by: Guard | None) -> Iterator[None]:
    """Call user code inside the block through a guard."""
    token = _current.set(by)
    try:
        yield
    finally:
        _current.reset(token)


def applied(operator: RowWise, rows: pl.DataFrame) -> pl.DataFrame:
    """Apply a row-wise operator to rows, through the current guard if there is one."""
    by = guard()
    return operator.applied(rows) if by is None else by.apply(operator, rows)
