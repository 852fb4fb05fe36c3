"""Open a store by its URL.

The scheme names the module: `file:///path` is opened by `open_url` of `umbel.state.file`. A package of your own adds a
scheme by an entry point in the group `umbel.stores` that loads to such a function.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from urllib.parse import SplitResult, parse_qsl, urlsplit

import umbel.state
from umbel import plugins
from umbel.errors import InvalidValue, PackageError, UnknownName, did_you_mean
from umbel.state.passwords import masked, remember_all
from umbel.state.port import Store

Opener = Callable[[SplitResult, int, Mapping[str, str]], Store]
"""Opens a store: the parts of the URL, the number of shards, the query parameters."""

GROUP = "umbel.stores"


def open_store(url: str, shards: int) -> Store:
    """Open the store at `url`.

    Args:
        url: `memory://`, `file:///directory?flush_bytes=<bytes>`, or the URL of a store some package provides.
        shards: the number of shards of the deployment.

    Raises:
        UnknownName: no store has this scheme.
        PackageError: two stores have it, or the package with the store cannot be loaded.
        InvalidValue: the URL or the number of shards does not fit.
    """
    if shards < 1:
        raise InvalidValue(f"a store needs at least one shard, not {shards}")
    remember_all(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidValue(f"the store's URL cannot be read: {masked(url)}", hint="file:///directory") from None
    return _opener(parts.scheme)(parts, shards, dict(parse_qsl(parts.query)))


def _opener(scheme: str) -> Opener:
    own, entries = _own(scheme), [entry for entry in plugins.provided(GROUP) if entry.name == scheme]
    owners = [f"umbel.state.{scheme}"] * (own is not None) + [plugins.described(entry) for entry in entries]
    if len(owners) > 1:
        raise PackageError(
            f"two stores are called '{scheme}': {owners[0]} and {owners[1]}", hint="uninstall one of them"
        )
    if not owners:
        raise UnknownName(
            f"no store is called {scheme!r}" + did_you_mean(scheme, schemes()),
            hint="the URL of a store begins with its name: file:///path/of/a/folder",
        )
    return own or plugins.loaded(entries[0])


def _own(scheme: str) -> Opener | None:
    """Return the opener in umbel's module of this name, None if it is no store."""
    if not scheme.isidentifier() or find_spec(f"umbel.state.{scheme}") is None:
        return None
    return getattr(import_module(f"umbel.state.{scheme}"), "open_url", None)


def schemes() -> list[str]:
    """Return the schemes of all stores, umbel's own and those of other packages."""
    own = [module.name for module in pkgutil.iter_modules(umbel.state.__path__) if _own(module.name)]
    return own + [entry.name for entry in plugins.provided(GROUP)]
