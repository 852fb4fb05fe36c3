"""Erasure: rows with erased keys are hidden on their branch and dropped when ingested again.

Erasures are part of the revisions: a batch that is run again under its revision drops the very same rows.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import lru_cache

import polars as pl

from umbel.definitions.identities import erasure_of
from umbel.query.erasure import Erased, ErasedKeys
from umbel.runtime.deployment import Deployment, replaced


def erase(deployment: Deployment, branch: str, dataset: str, keys: Mapping[str, pl.Series]) -> int:
    """Erase rows by their erase keys; return the first revision with the erasure.

    Args:
        deployment: the deployment.
        branch: the branch to erase on.
        dataset: a dataset of the branch.
        keys: a column for each of its erase keys.
    """
    data = io.BytesIO()
    pl.DataFrame(keys).write_ipc(data)
    return deployment.catalog.erase(branch, dataset, _identities(deployment, branch, dataset), data.getvalue())


def erased_on(deployment: Deployment, branch: str, revision: int) -> Erased:
    """Return the erased keys of a branch as of a revision.

    These are of the datasets that served it then. Those of earlier versions with the same erase keys are erased still.
    """
    return _erased(deployment, branch, revision, deployment.catalog.serving(revision).get(branch, 0))


def _erased(deployment: Deployment, branch: str, revision: int, answering: int) -> Erased:
    datasets = deployment.definitions(answering).datasets
    found = Erased()
    for name, identity, data in deployment.catalog.erasures(branch, revision):
        dataset = datasets.get(name)
        if dataset is not None and identity in (erasure_of(dataset), dataset.fingerprint):  # the latter in 0.1
            found.merge(name, keys_in(data))
    return found


@lru_cache(maxsize=4)
def erased_everywhere(deployment: Deployment, revision: int) -> Erased:
    """Return the keys erased on every branch that has a dataset.

    They are by the dataset's name in the graph; rows with these keys need not be ingested.
    """
    graph, found = deployment.graph(revision), dict[str, list[ErasedKeys | None]]()
    heads, serving = deployment.catalog.heads(revision), deployment.catalog.serving(revision)
    former = {replaced(branch): branch for branch in heads}
    for placed_branch, names in graph.names.items():
        branch = former.get(placed_branch, placed_branch)
        answering = serving if placed_branch in former else heads
        erased = _erased(deployment, branch, revision, answering.get(branch, 0))
        for name, placed in names.items():
            found.setdefault(placed, []).append(erased.keys(name))
    common = {placed: _common(each) for placed, each in found.items()}
    return Erased({placed: keys for placed, keys in common.items() if keys is not None})


def keys_in(data: bytes) -> ErasedKeys:
    """Return the keys of an erasure: rows in the catalog until a purge, then digests."""
    return ErasedKeys.unpack(data) or ErasedKeys.of(pl.read_ipc(io.BytesIO(data)))


def _common(every: list[ErasedKeys | None]) -> ErasedKeys | None:
    first, *others = every
    for other in others:
        first = None if first is None or other is None else first & other
    return first


def _identities(deployment: Deployment, branch: str, dataset: str) -> list[str]:
    """Return the identities of a dataset to erase from.

    These are of the serving version and the one being backfilled, if both have the same erase keys.
    """
    catalog = deployment.catalog
    numbers = (catalog.serving(catalog.latest()).get(branch, 0), catalog.head(branch))
    found = [deployment.definitions(number).datasets.get(dataset) for number in numbers]
    known = [each for each in found if each is not None]
    return list(dict.fromkeys(erasure_of(each) for each in known if each.erase_keys == known[0].erase_keys))
