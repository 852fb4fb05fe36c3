"""Opening a store by its URL.

The scheme names the module: `lmdb:///path` is opened by `open_url` of `umbel.state.lmdb`. A package of your own adds a
scheme by an entry point in the group `umbel.stores` that loads to such a function.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from urllib.parse import SplitResult, parse_qsl, urlsplit

import umbel.state
from umbel.errors import InvalidValue, UnknownName, did_you_mean
from umbel.state.port import Store

Opener = Callable[[SplitResult, int, Mapping[str, str]], Store]
"""Opens a store: the parts of the URL, the number of shards, the settings after the question mark."""

GROUP = "umbel.stores"


def open_store(url: str, shards: int) -> Store:
    """Open the store at `url`.

    Args:
        url: `memory://`, `lmdb:///directory?map_size=<bytes>`, or the URL of a store some package provides.
        shards: the number of shards of the deployment.

    Raises:
        UnknownName: no store has this scheme.
        InvalidValue: the URL or the number of shards does not fit.
    """
    if shards < 1:
        raise InvalidValue(f"a store needs at least one shard, not {shards}")
    parts = urlsplit(url)
    return _opener(parts.scheme)(parts, shards, dict(parse_qsl(parts.query)))


def _opener(scheme: str) -> Opener:
    found = _own(scheme) or next(_provided(scheme), None)
    if found is None:
        raise UnknownName(f"no store is called {scheme!r}" + did_you_mean(scheme, _schemes()))
    return found


def _own(scheme: str) -> Opener | None:
    """Return the opener in our module of this name, if it is one of a store."""
    if not scheme.isidentifier() or find_spec(f"umbel.state.{scheme}") is None:
        return None
    return getattr(import_module(f"umbel.state.{scheme}"), "open_url", None)


def _provided(scheme: str) -> Iterator[Opener]:
    return (entry.load() for entry in entry_points(group=GROUP, name=scheme))


def _schemes() -> list[str]:
    own = [module.name for module in pkgutil.iter_modules(umbel.state.__path__) if _own(module.name)]
    return own + [entry.name for entry in entry_points(group=GROUP)]
