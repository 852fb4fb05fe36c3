"""States at hand: those of one key in one window, as arrays, for a question that is not worth a frame."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray


class Held(Protocol):
    """Partial states by the full names of their columns; what is null is 0."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column."""

    def present(self, name: str) -> NDArray[Any]:
        """Return the values of a column that are not null."""

    def total(self, name: str) -> int:
        """Return the exact sum of a column of decimals, in units of their last digit."""
