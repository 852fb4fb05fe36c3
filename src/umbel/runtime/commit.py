"""Committing definitions to a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from umbel.errors import InvalidValue
from umbel.plan.definitions import Definitions
from umbel.plan.graph import Graph
from umbel.plan.serde import dump
from umbel.runtime.deployment import Deployment
from umbel.runtime.sources import open_sources


def commit(
    deployment: Deployment,
    definitions: Definitions,
    *,
    message: str = "",
    preview: bool = False,
    incremental: bool = False,
    backfill: bool = True,
) -> dict[str, Any]:
    """Put definitions into force.

    Args:
        deployment: where.
        definitions: checked.
        message: why.
        preview: only say what would change.
        incremental: keep what is in force and not mentioned.
        backfill: whether new pipelines may be computed from history.

    Returns:
        The revision, and what is new, changed, removed and unchanged.

    Raises:
        InvalidValue: a definition changed without a new version, or a backfill would be needed and is not allowed.
    """
    before = deployment.definitions(deployment.catalog.revision())
    after = _merged(before, definitions) if incremental else definitions
    difference = _difference(before, after)
    _check_versions(before, after, difference["changed"])
    old, new = Graph(before.datasets.values()), Graph(after.datasets.values())
    list(open_sources(deployment.directory, after.datasets.values()))
    known = {node.owner for node in old.nodes}
    recomputed = sorted({name for name, node in new.outputs.items() if before.datasets and node.owner not in known})
    if not backfill and recomputed:
        raise InvalidValue(f"datasets {recomputed} would have to be computed from history", hint="backfill=True")
    told: dict[str, Any] = {**difference, "recomputed": recomputed}
    if preview:
        return {"revision": None, **told}
    if not any(difference[kind] for kind in ("new", "changed", "removed")) and before.datasets:
        return {"revision": deployment.catalog.revision(), **told}
    return {"revision": deployment.catalog.commit("main", message, dump(after)), **told}


def _merged(before: Definitions, after: Definitions) -> Definitions:
    datasets = {**before.datasets, **after.datasets}
    return replace(after, datasets=datasets, featuresets={**before.featuresets, **after.featuresets})


def _difference(before: Definitions, after: Definitions) -> dict[str, list[str]]:
    old, new = _objects(before), _objects(after)
    both = old.keys() & new.keys()
    return {
        "new": sorted(new.keys() - old.keys()),
        "changed": sorted(name for name in both if old[name] != new[name]),
        "removed": sorted(old.keys() - new.keys()),
        "unchanged": sorted(name for name in both if old[name] == new[name]),
    }


def _objects(definitions: Definitions) -> dict[str, str]:
    """Return what each object is, as bytes that differ when anything about it does."""
    found: Mapping[str, Definitions] = {
        **{name: Definitions({name: each}, {}) for name, each in definitions.datasets.items()},
        **{name: Definitions({}, {name: each}) for name, each in definitions.featuresets.items()},
    }
    return {name: dump(each).hex() for name, each in found.items()}


def _check_versions(before: Definitions, after: Definitions, changed: list[str]) -> None:
    for name in changed:
        old, new = before.datasets.get(name), after.datasets.get(name)
        if old is None or new is None:
            continue
        if new.version < old.version or (new.version == old.version and new.signature != old.signature):
            raise InvalidValue(
                f"dataset '{name}' version {new.version} differs from what is in force as version {old.version}",
                hint=f"raise it: @dataset(version={old.version + 1})",
            )
