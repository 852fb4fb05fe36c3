"""RowIsolation of rows that break what reads them.

Validation has a reason for every value it does not take. Should one ever raise all the same, the row is found and rejected with
the error, so that it holds up no other row and no other dataset.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from umbel.errors import UmbelError, text_of
from umbel.types.raw import Raw, rejects
from umbel.types.validate import Validated

UNEXPECTED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)
"""Errors of values. Those of files, of memory and of the runtime are not: the batch is tried again."""
TRIES = 500
"""How often parts of a batch are tried before those left that fail are rejected whole."""


class RowIsolation:
    """Applies a function to rows, without the ones at which it raises.

    Args:
        apply: returns accepted and rejected rows, always in the same columns.
    """

    def __init__(self, apply: Callable[[Raw], Validated]) -> None:
        self._apply, self._tries = apply, TRIES

    def applied(self, raw: Raw) -> Validated:
        """Return the accepted and the rejected rows.

        Raises:
            UmbelError: the function raised it.
        """
        try:
            return self._apply(raw)
        except UNEXPECTED as error:
            if isinstance(error, UmbelError):  # of the definitions, or of the runtime
                raise
            height = raw.frame.height
            self._tries -= 1
            if height > 1 and self._tries > 0:
                return _joined([self.applied(part_of(raw, at, size)) for at, size in _halves(height)], height)
            empty = self._apply(part_of(raw, 0, 0))
            reason = f"{type(error).__name__}: {text_of(error)}"
            return Validated(empty.frame, empty.accepted, rejects(dict.fromkeys(range(height), reason)))


def part_of(raw: Raw, at: int, size: int) -> Raw:
    """Return consecutive rows of some."""
    own = (pl.col("row") >= at) & (pl.col("row") < at + size)
    return Raw(
        raw.frame.slice(at, size),
        raw.rejects.filter(own).with_columns(pl.col("row") - at),
        {row - at: instant for row, instant in raw.deletions.items() if at <= row < at + size},
        None if raw.starts is None else raw.starts.slice(at, size),
        None if raw.replaces is None else raw.replaces.slice(at, size),
        {row - at: instant for row, instant in raw.truncations.items() if at <= row < at + size},
        None if raw.objects is None else raw.objects[at : at + size],
        raw.is_sparse,
    )


def _halves(height: int) -> list[tuple[int, int]]:
    half = height // 2
    return [(0, half), (half, height - half)]


def _joined(parts: list[Validated], height: int) -> Validated:
    starts = [at for at, _ in _halves(height)]
    accepted = [each.accepted + at for at, each in zip(starts, parts, strict=True)]
    refused = [each.rejects.with_columns(pl.col("row") + at) for at, each in zip(starts, parts, strict=True)]
    return Validated(pl.concat(each.frame for each in parts), pl.concat(accepted).cast(pl.UInt32), pl.concat(refused))
