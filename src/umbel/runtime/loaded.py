"""Definitions as read from the catalog, each once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from umbel.catalog.catalog import Catalog
from umbel.definitions.records import Definitions
from umbel.definitions.serde import load

OTHERS = 8
"""Revisions that are retained besides those in force on the branches."""


class LoadedDefinitions:
    """The definitions of the branches and of some other revisions.

    All branches are read again and again, by each commit several times: a cache smaller than their number has none of them.

    Args:
        catalog: has them.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._in_force = catalog, dict[int, Definitions]()
        self._other = lru_cache(maxsize=OTHERS)(self._read)

    def of(self, revision: int) -> Definitions:
        """Return the definitions of a revision; revision 0 is empty."""
        found = self._in_force.get(revision)
        return self._other(revision) if found is None else found

    def in_force(self, revisions: Iterable[int]) -> Mapping[int, Definitions]:
        """Return the definitions of revisions, and retain all until the next call."""
        self._in_force = found = {each: self.of(each) for each in revisions}
        return found

    def _read(self, revision: int) -> Definitions:
        found = self._catalog.definitions(revision) if revision else b""
        return load(found) if found else Definitions({}, {})
