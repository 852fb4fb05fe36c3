"""Immutability: what has changed in definitions needs a higher version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from umbel.errors import InvalidValue, UmbelError
from umbel.plan.definitions import DatasetDefinition, Definitions, FeaturesetDefinition


def version_faults(
    before: Definitions,
    datasets: Mapping[str, DatasetDefinition],
    featuresets: Mapping[str, FeaturesetDefinition],
) -> Iterator[UmbelError]:
    """Yield what may not change as it did.

    Args:
        before: what is on the branch.
        datasets: new definitions, by name.
        featuresets: new definitions, by name.
    """
    for name, new in datasets.items():
        if name in before.datasets:
            yield from _changed(before.datasets[name], new)
    for name, features in featuresets.items():
        if name in before.featuresets:
            yield from _removed(before.featuresets[name], features)


def _changed(old: DatasetDefinition, new: DatasetDefinition) -> Iterator[UmbelError]:
    if new.version < old.version:
        message = f"dataset '{new.name}': version {new.version} is lower than version {old.version} on the branch"
        yield InvalidValue(message, where=new.place, hint=f"use version {old.version + 1}")
    elif new.version == old.version and new.signature != old.signature:
        message = f"dataset '{new.name}' has changed, and its version is still {old.version}"
        yield InvalidValue(message, where=new.place, hint=f"update the version: version={old.version + 1}")


def _removed(old: FeaturesetDefinition, new: FeaturesetDefinition) -> Iterator[UmbelError]:
    names = {each.name for each in new.features}
    missing = [each.name for each in old.features if each.name not in names]
    if missing:
        message = f"featureset '{new.name}' is not a superset of the one on the branch: it lacks {', '.join(missing)}"
        yield InvalidValue(message, where=new.place, hint="mark features as deleted instead of removing them")
