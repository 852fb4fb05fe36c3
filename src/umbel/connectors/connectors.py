"""The names of `umbel.connectors`, for imports by older programs."""

from typing import TYPE_CHECKING, Any

from umbel import connectors
from umbel.connectors import __all__  # noqa: F401

if TYPE_CHECKING:
    from umbel.connectors import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(connectors, name)
