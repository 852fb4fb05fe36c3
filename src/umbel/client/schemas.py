"""The types of what a server holds, so that its answers become frames of the right dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from umbel.errors import InvalidValue
from umbel.query.encode import column_from_json
from umbel.types.dtypes import DType, Optional

if TYPE_CHECKING:
    import pandas as pd

    from umbel.plan.definitions import Definitions


class Schemas:
    """The definitions of each branch as the server last told them.

    Args:
        fetch: asks the server for those of a branch.
    """

    def __init__(self, fetch: Callable[[str], Definitions]) -> None:
        self._fetch = fetch
        self._known: dict[str, Definitions] = {}

    def forget(self) -> None:
        """Ask again the next time."""
        self._known.clear()

    def features(self, branch: str, items: Sequence[Any], names: Sequence[str]) -> dict[str, DType]:
        """Return the types of features: of feature objects as they say, else as the server says.

        Args:
            branch: the branch asked.
            items: features as users gave them.
            names: fully qualified names to find types for.
        """
        stated = {item.fqn(): item.type for item in items if isinstance(getattr(item, "type", None), DType)}
        missing = [name for name in names if name not in stated]
        return {**stated, **self._feature_types(branch, missing)} if missing else stated

    def all_features(self, branch: str) -> dict[str, DType]:
        """Return the types of all features of a branch, as it is now."""
        self._known[branch] = self._fetch(branch)
        return _all_features(self._known[branch])

    def _feature_types(self, branch: str, names: Sequence[str]) -> dict[str, DType]:
        return self._wanted(branch, names, _all_features, "feature")

    def dataset(self, branch: str, name: str) -> dict[str, DType]:
        """Return the types of a dataset's fields."""
        found: dict[str, DType] = self._wanted(branch, [name], _all_datasets, "dataset")[name]
        return found

    def _wanted(
        self, branch: str, names: Sequence[str], read: Callable[[Definitions], Mapping[str, Any]], kind: str
    ) -> dict[str, Any]:
        found = read(self._known[branch]) if branch in self._known else {}
        if any(name not in found for name in names):  # committed since, perhaps by someone else
            self._known[branch] = self._fetch(branch)
            found = read(self._known[branch])
        unknown = [name for name in names if name not in found]
        if unknown:
            raise InvalidValue(
                f"{kind} '{unknown[0]}' is not committed on branch '{branch}'",
                hint="commit it, or check out another branch",
            )
        return {name: found[name] for name in names}


def _all_features(definitions: Definitions) -> dict[str, DType]:
    return {each.fqn: each.dtype for owner in definitions.featuresets.values() for each in owner.features}


def _all_datasets(definitions: Definitions) -> dict[str, dict[str, DType]]:
    return {each.name: each.dtypes for each in definitions.datasets.values()}


def frame(data: Mapping[str, Sequence[Any]], types: Mapping[str, DType]) -> pd.DataFrame:
    """Return JSON columns as a pandas frame of nullable dtypes, in the order of the answer."""
    import pandas as pd

    shown = {name: _shown(name, values, types[name]) for name, values in data.items()}
    return pd.DataFrame(shown, columns=list(data))


def _shown(name: str, values: Sequence[Any], dtype: DType) -> pd.Series[Any]:
    nullable = Optional(dtype.base)
    return nullable.to_pandas(column_from_json(values, nullable, name, "the server's answer"))
