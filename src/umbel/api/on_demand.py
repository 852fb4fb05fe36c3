"""`@on_demand`: a compatibility decorator without effect."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def on_demand(expires_after: str) -> Callable[[T], T]:
    """Accept a method that computes missing rows; it is never called.

    Args:
        expires_after: ignored.
    """
    warnings.warn("on_demand has no effect: compute rows in a pipeline", DeprecationWarning, stacklevel=2)
    return lambda func: func
