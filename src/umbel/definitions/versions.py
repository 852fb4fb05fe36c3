"""Versions: whole numbers; a changed definition needs a higher one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from umbel.definitions.records import DatasetDefinition, Definitions, FeaturesetDefinition
from umbel.errors import InvalidType, InvalidValue, UmbelError


def check_version(subject: str, version: Any, example: str, *, first: int | None = None) -> None:
    """Refuse a version other than an int.

    Args:
        subject: the declared object, for messages.
        version: as provided.
        example: a use of the argument, as the hint.
        first: the lowest version, None if any is allowed.
    """
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidType(f"{subject}: version must be an int, found {version!r}", hint=example)
    if first is not None and version < first:
        raise InvalidValue(
            f"{subject}: version must be at least {first}, found {version}", hint=f"the first version is {first}"
        )


def version_errors(
    before: Definitions,
    datasets: Mapping[str, DatasetDefinition],
    featuresets: Mapping[str, FeaturesetDefinition],
    serving: Definitions | None = None,
) -> Iterator[UmbelError]:
    """Yield the errors of changed definitions without a higher version.

    Args:
        before: the committed definitions of the branch.
        datasets: new definitions, by name.
        featuresets: new definitions, by name.
        serving: the definitions that answer while `before` is being backfilled; reverting to them is allowed.
    """
    for name, new in datasets.items():
        if name in before.datasets and not _is_return(new, serving):
            yield from _changed(before.datasets[name], new)
    for name, features in featuresets.items():
        if name in before.featuresets:
            yield from _removed(before.featuresets[name], features)


def _is_return(new: DatasetDefinition, serving: Definitions | None) -> bool:
    former = serving.datasets.get(new.name) if serving is not None else None
    return former is not None and (former.version, former.signature) == (new.version, new.signature)


def _changed(old: DatasetDefinition, new: DatasetDefinition) -> Iterator[UmbelError]:
    if new.version < old.version:
        message = f"dataset '{new.name}': version {new.version} is lower than version {old.version} on the branch"
        yield InvalidValue(message, where=new.location, hint=f"use version {old.version + 1}")
    elif new.version == old.version and new.signature != old.signature:
        message = f"dataset '{new.name}' has changed, and its version is still {old.version}"
        yield InvalidValue(message, where=new.location, hint=f"update the version: version={old.version + 1}")


def _removed(old: FeaturesetDefinition, new: FeaturesetDefinition) -> Iterator[UmbelError]:
    names = {each.name for each in new.features}
    missing = [each.name for each in old.features if each.name not in names]
    if missing:
        message = f"featureset '{new.name}' is not a superset of the one on the branch: it lacks {', '.join(missing)}"
        yield InvalidValue(message, where=new.location, hint="mark features as deleted instead of removing them")
