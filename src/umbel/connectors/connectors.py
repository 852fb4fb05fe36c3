"""The names of `umbel.connectors`, where older programs import them from."""

from typing import TYPE_CHECKING, Any

from umbel import connectors
from umbel.connectors import __all__  # noqa: F401

if TYPE_CHECKING:
    from umbel.connectors import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(connectors, name)
