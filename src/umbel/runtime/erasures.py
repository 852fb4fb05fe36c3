"""Erasure: rows with erased keys are seen no more on the branch that erased them, nor taken in when they come again.

What is erased is part of the commits: a batch that is run again under its revision drops the very same rows.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import lru_cache

import polars as pl

from umbel.query.erasure import Erased
from umbel.runtime.deployment import Deployment


def erase(deployment: Deployment, branch: str, dataset: str, keys: Mapping[str, pl.Series]) -> int:
    """Erase by keys; return the revision from which on it is in force.

    Args:
        deployment: where.
        branch: whose rows.
        dataset: a dataset of the branch.
        keys: a column for each of its erase keys.
    """
    data = io.BytesIO()
    pl.DataFrame(keys).write_ipc(data)
    return deployment.catalog.erase(branch, dataset, _identity(deployment, branch, dataset), data.getvalue())


def erased_on(deployment: Deployment, branch: str, revision: int) -> Erased:
    """Return what is erased on a branch as of a revision."""
    datasets = deployment.definitions(deployment.catalog.heads(revision).get(branch, 0)).datasets
    found = Erased()
    for name, identity, data in deployment.catalog.erasures(branch, revision):
        if name in datasets and datasets[name].fingerprint == identity:
            found.add(name, pl.read_ipc(io.BytesIO(data)))
    return found


@lru_cache(maxsize=4)
def erased_everywhere(deployment: Deployment, revision: int) -> Erased:
    """Return what is erased on every branch that has a dataset, by its name in the graph: it need not be taken in."""
    graph, found = deployment.graph(revision), dict[str, list[pl.DataFrame | None]]()
    for branch, names in graph.names.items():
        erased = erased_on(deployment, branch, revision)
        for name, placed in names.items():
            found.setdefault(placed, []).append(erased.keys(name))
    common = {placed: _common(each) for placed, each in found.items()}
    return Erased({placed: keys for placed, keys in common.items() if keys is not None})


def _common(every: list[pl.DataFrame | None]) -> pl.DataFrame | None:
    first, *others = every
    for other in others:
        first = None if first is None or other is None else first.join(other, on=first.columns, how="semi")
    return first


def _identity(deployment: Deployment, branch: str, dataset: str) -> str:
    return deployment.branch(branch).datasets[dataset].fingerprint
