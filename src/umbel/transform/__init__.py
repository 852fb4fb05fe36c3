"""The transformation worker: YAML or TOML configurations that make new records of JSON records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from umbel.transform.configuration import Configuration, load, loads

__all__ = ["Configuration", "load", "loads"]


def __getattr__(name: str) -> Any:
    """Return a public name, loaded at its first use.

    The process that only starts workers never uses it.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from umbel.transform import configuration

    return getattr(configuration, name)
