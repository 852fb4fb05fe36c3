"""Dedup: the last of rows that are equal in some columns, at one instant or within a window.

Class `Dedup`; fields `by` (columns; all values when empty), `window` (None, Tumbling or Session); `columns` resolves `by`.
"""

from __future__ import annotations

from dataclasses import dataclass

from umbel.errors import InvalidType, InvalidValue
from umbel.operators.columns import check_keyless, check_known
from umbel.operators.operator import Keyed
from umbel.types.schema import Schema
from umbel.types.windows import Session, Tumbling


@dataclass(frozen=True, eq=False, kw_only=True)
class Dedup(Keyed):
    """Keep the last of equal rows.

    Args:
        by: the columns that make rows equal; all value columns when empty.
        window: None: rows of one instant; Tumbling: of one bucket; Session: less than its gap apart.
    """

    by: tuple[str, ...] = ()
    window: Tumbling | Session | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that make rows equal."""
        return self.by or tuple(self.parents[0].schema.value_names)

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        check_keyless(rows, self.title, InvalidValue)
        if rows.timestamp in self.by:
            raise InvalidValue(f"{self.title}: '{rows.timestamp}' is the timestamp", hint="see `window`")
        check_known(self.by, rows.value_names, self.title)
        self._check_window()
        return rows

    def _check_window(self) -> None:
        if self.window is not None and not isinstance(self.window, Tumbling | Session):
            found = type(self.window).__name__
            raise InvalidType(f"{self.title}: window must be Tumbling or Session, found {found}")
        if isinstance(self.window, Tumbling) and self.window.lookback_us:
            raise InvalidValue(f"{self.title}: window with lookback '{self.window.lookback}' is not supported")

    def exchange(self) -> tuple[tuple[str, ...], ...]:
        return (self.columns,)
