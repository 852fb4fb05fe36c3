"""Time and memory limits of user functions, set by environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Self

from umbel.errors import InvalidValue

PREFIX = "UMBEL_FUNCTION_"
ROW_TIME = 200e-6
"""Seconds a row of a large frame may take however short the limit of a call is."""
FRAME_COPIES = 32
"""How many times its own size a frame may take as Python objects, on top of the limit."""


@dataclass(frozen=True, slots=True)
class FunctionLimits:
    """Limits of user functions, in pipelines and in transformations.

    Args:
        row_seconds: seconds a call for one row may take; `UMBEL_FUNCTION_ROW_SECONDS`.
        batch_seconds: seconds a call for many rows may take; `UMBEL_FUNCTION_BATCH_SECONDS`.
        memory: MiB a process may gain during a call; `UMBEL_FUNCTION_MEMORY`.
    """

    row_seconds: float = 10.0
    batch_seconds: float = 60.0
    memory: float = 1024.0

    @classmethod
    def from_environment(cls) -> Self:
        """Return the limits that the environment sets, with defaults for the others.

        Raises:
            InvalidValue: one is no positive number.
        """
        plain = cls()
        return cls(
            **{each.name: setting(PREFIX + each.name.upper(), getattr(plain, each.name)) for each in fields(cls)}
        )

    def seconds(self, rows: int) -> float:
        """Return the seconds a call for this many rows may take."""
        return min(rows * self.row_seconds, self.seconds_of_batch(rows))

    def seconds_of_batch(self, rows: int) -> float:
        """Return the seconds the first call for all rows of a batch may take."""
        return max(self.batch_seconds, rows * ROW_TIME)

    def bytes(self, size: int) -> int:
        """Return the memory a process may gain in a call, for `size` bytes of input."""
        return int(self.memory * (1 << 20)) + FRAME_COPIES * size


def setting(name: str, default: float) -> float:
    """Return a positive number from an environment variable.

    Raises:
        InvalidValue: it is something else.
    """
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise InvalidValue(f"{name} must be a positive number, found {text!r}", hint=f"its default is {default:g}")
    return value
