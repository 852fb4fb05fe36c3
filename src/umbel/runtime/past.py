"""Datasets as they were committed before, for all datasets of a commit at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from umbel.definitions.identities import input_of
from umbel.definitions.records import DatasetDefinition, Definitions
from umbel.functions.fingerprint import fingerprint
from umbel.runtime.deployment import Deployment


class PastDatasets:
    """Earlier definitions of the datasets of a commit, the newest first.

    Each commit is read once for all of them, and not before it is needed.

    Args:
        deployment: has the commits.
        definitions: of a commit to come; only datasets of its names are retained.
    """

    def __init__(self, deployment: Deployment, definitions: Definitions) -> None:
        self._deployment, self._names = deployment, definitions.datasets.keys()
        self._revisions = iter(range(deployment.catalog.latest(), 0, -1))
        self._found: defaultdict[str, dict[str, DatasetDefinition]] = defaultdict(dict)

    def of(self, dataset: DatasetDefinition) -> Iterator[DatasetDefinition]:
        """Yield each different one of a dataset's name, if anything was read for its version."""
        key, position = f"{dataset.name}@{dataset.version}/", 0
        if not any(each.startswith(key) for each in self._read):
            return
        while True:
            known = list(self._found[dataset.name].values())
            yield from known[position:]
            position = len(known)
            if not self._advance():
                return

    @cached_property
    def _read(self) -> list[str]:
        """The sources of which something was read."""
        if not (self._deployment.directory / "plans").is_dir() or not self._deployment.is_home:
            return []
        plans = self._deployment.plans()
        last = plans.last()
        return list(plans.read(last).positions) if last else []

    def _advance(self) -> bool:
        """Read one more commit; return False if there is none."""
        revision = next(self._revisions, None)
        if revision is None:
            return False
        for name, each in self._deployment.definitions(revision).datasets.items():
            if name in self._names:
                self._found[name].setdefault(_identity(each), each)
        return True


def _identity(dataset: DatasetDefinition) -> str:
    """Return what of a dataset decides on the positions of its sources."""
    places = [(each.position, each.connector.place, each.connector.source_name) for each in dataset.sources]
    return fingerprint(dataset.fingerprint, dataset.version, dataset.feed, input_of(dataset), places)
