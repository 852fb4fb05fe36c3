"""Committing definitions to a deployment."""

from __future__ import annotations

from typing import Any

from umbel.errors import InvalidValue, UmbelError
from umbel.plan.definitions import Definitions
from umbel.plan.graph import MAIN, Graph
from umbel.plan.serde import dump
from umbel.plan.versions import version_faults
from umbel.runtime.deployment import Deployment
from umbel.runtime.sources import open_sources


def commit(
    deployment: Deployment,
    definitions: Definitions,
    *,
    branch: str = MAIN,
    message: str = "",
    preview: bool = False,
    incremental: bool = False,
    backfill: bool = True,
) -> dict[str, Any]:
    """Put definitions into force.

    Args:
        deployment: where.
        definitions: checked; all that the branch is to have.
        branch: whose they are to be.
        message: why.
        preview: only say what would change.
        incremental: they are those in force, with some added or replaced; features must not be lost.
        backfill: whether new pipelines may be computed from history.

    Returns:
        The revision, and what is new, changed, removed and unchanged.

    Raises:
        InvalidValue: a definition changed without a new version, or a backfill would be needed and is not allowed.
    """
    catalog, head = deployment.catalog, deployment.catalog.head(branch)
    before = deployment.definitions(head)
    told: dict[str, Any] = _difference(before, definitions)
    is_changed = not before.datasets or any(told[kind] for kind in ("new", "changed", "removed"))
    _check_versions(before, definitions, incremental=incremental)
    list(open_sources(deployment.directory, graph := deployment.graph_with(branch, definitions)))
    told["recomputed"] = _recomputed(deployment.graph(catalog.latest()), graph, branch)
    if not backfill and told["recomputed"]:
        asked = f"datasets {told['recomputed']} would have to be computed from history"
        raise InvalidValue(asked, hint="backfill=True")
    if preview or not is_changed:
        return {"revision": None if preview else head, **told}
    return {"revision": catalog.commit(branch, message, dump(definitions)), **told}


def _difference(before: Definitions, after: Definitions) -> dict[str, list[str]]:
    old, new = _objects(before), _objects(after)
    both = old.keys() & new.keys()
    return {
        "new": sorted(new.keys() - old.keys()),
        "changed": sorted(name for name in both if old[name] != new[name]),
        "removed": sorted(old.keys() - new.keys()),
        "unchanged": sorted(name for name in both if old[name] == new[name]),
    }


def _objects(definitions: Definitions) -> dict[str, bytes]:
    """Return what each object is, as bytes that differ when anything about it does."""
    datasets = {name: dump(Definitions({name: each}, {})) for name, each in definitions.datasets.items()}
    return {**datasets, **{name: dump(Definitions({}, {name: each})) for name, each in definitions.featuresets.items()}}


def _check_versions(before: Definitions, after: Definitions, *, incremental: bool) -> None:
    faults = list(version_faults(before, after.datasets, after.featuresets if incremental else {}))
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise InvalidValue(f"{len(faults)} faults{''.join(map(_line, faults))}")


def _line(fault: UmbelError) -> str:
    return f"\n  - {fault}"


def _recomputed(old: Graph, new: Graph, branch: str) -> list[str]:
    """Return the datasets of a branch whose rows must be computed from what datasets already there have had."""
    known = {node.owner for node in old.nodes}
    entries = {node.owner for node in old.entries.values()}
    return sorted(
        name
        for name, placed in new.names[branch].items()
        if new.outputs[placed].owner not in known
        and any(new.entries[each].owner in entries for each in _sources(new, placed))
    )


def _sources(graph: Graph, name: str) -> set[str]:
    return graph.upstream(name) & graph.entries.keys() - {name}
