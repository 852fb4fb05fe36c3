"""Types of a server's features and fields.

They give the frames made from its answers the right dtypes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from umbel.errors import UmbelError, UnknownName
from umbel.query.answer import Answer
from umbel.query.encode import column_from_json
from umbel.query.resolve import Catalogue
from umbel.types.dtypes import DType, Optional

if TYPE_CHECKING:
    from umbel.definitions.records import Definitions

_Found = TypeVar("_Found")
RENEWAL = 1.0
"""Seconds between two times that the definitions of a branch are fetched because it refuses values."""


class Schemas:
    """A cache of the definitions of each branch, as last fetched.

    Args:
        fetch: requests the serving definitions of a branch from the server.
        committed: requests the last committed definitions, which may not be backfilled yet.
    """

    def __init__(self, fetch: Callable[[str], Definitions], committed: Callable[[str], Definitions]) -> None:
        self._fetch, self._committed = fetch, committed
        self._known: dict[str, Definitions] = {}
        self._revisions: dict[str, str] = {}
        self._renewed_at: dict[str, float] = {}

    def answered(self, branch: str, revision: str | None) -> None:
        """Record the commit that answers on a branch.

        If it differs from the one before, the cached types are dropped and fetched again.
        """
        if revision is not None and self._revisions.get(branch) != revision:
            self._known.pop(branch, None)
            self._revisions[branch] = revision

    def is_outdated(self, branch: str) -> bool:
        """Fetch a branch's definitions again; return True if another commit than before is serving.

        It is called for values that do not fit the cached types. Those of callers that repeat such values are not fetched
        each time.
        """
        now = time.monotonic()
        if now - self._renewed_at.get(branch, -math.inf) < RENEWAL:
            return False
        self._renewed_at[branch] = now
        before = self._revisions.get(branch)
        with suppress(UmbelError):  # the caller has an error already
            self._known[branch] = self._fetch(branch)
        return self._revisions.get(branch) != before

    def forget(self) -> None:
        """Drop the cache."""
        self._known.clear()

    def features(self, branch: str, declared: Mapping[str, DType], names: Sequence[str]) -> Mapping[str, DType]:
        """Return the types of features, as declared or from the server.

        Args:
            branch: the queried branch.
            declared: the types of the features that the caller passed as objects.
            names: fully qualified names of the features to type.

        Raises:
            UmbelError: a name is not that of a committed feature.
        """
        missing = [name for name in names if name not in declared]
        if not missing:
            return declared
        found = self._requested(branch, missing, _all_features)
        if len(found) < len(missing):
            Catalogue(self._committed(branch).featuresets).provided(missing)  # says which is unknown, as a server would
        return {**declared, **found}

    def all_features(self, branch: str) -> dict[str, DType]:
        """Return the types of all features of a branch, freshly fetched."""
        self._known[branch] = self._fetch(branch)
        return _all_features(self._known[branch])

    def dataset(self, branch: str, name: str) -> dict[str, DType]:
        """Return the types of a dataset's fields."""
        found = self._requested(branch, [name], _all_datasets)
        if name not in found:
            raise UnknownName(f"dataset '{name}' is not committed on branch '{branch}'", hint="commit it first")
        return found[name]

    def _requested(
        self, branch: str, names: Sequence[str], read: Callable[[Definitions], Mapping[str, _Found]]
    ) -> dict[str, _Found]:
        found = read(self._known[branch]) if branch in self._known else {}
        if any(name not in found for name in names):  # committed since, perhaps by another client
            self._known[branch] = self._fetch(branch)
            found = read(self._known[branch])
        if any(name not in found for name in names):  # being backfilled: the server reports it
            found = {**read(self._committed(branch)), **found}
        return {name: found[name] for name in names if name in found}


def _all_features(definitions: Definitions) -> dict[str, DType]:
    return {fqn: each.dtype for fqn, each in Catalogue(definitions.featuresets).features.items()}


def _all_datasets(definitions: Definitions) -> dict[str, dict[str, DType]]:
    return {each.name: each.dtypes for each in definitions.datasets.values()}


def decoded(
    data: Mapping[str, Sequence[Any]], types: Mapping[str, DType], dtypes: Mapping[str, Any] | None = None
) -> Answer:
    """Return JSON columns in storage types, all nullable, in the order of the response.

    Args:
        data: the columns.
        types: of the columns.
        dtypes: the pandas dtypes of columns from extractors and inputs.
    """
    nullable = {name: Optional(types[name].base) for name in data}
    columns = {name: column_from_json(data[name], nullable[name], name, "the server's answer") for name in data}
    return Answer(columns, nullable, dtypes=dtypes or {})
