"""What a commit checks, and the frozen definitions it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from umbel.api.commit_datasets import dataset_definition
from umbel.api.commit_featuresets import featureset_definition
from umbel.api.commit_graph import extractor_faults, pipeline_faults
from umbel.api.dataset import Dataset, record_of
from umbel.api.env import check_env
from umbel.api.faults import Faults
from umbel.api.featureset import Featureset, featureset_record
from umbel.errors import InvalidType, InvalidValue
from umbel.plan.definitions import DatasetDefinition, Definitions, FeaturesetDefinition, Metadata
from umbel.plan.versions import version_faults

T = TypeVar("T")
Definition = TypeVar("Definition", DatasetDefinition, FeaturesetDefinition)


def check_commit(
    datasets: Iterable[Dataset] | None,
    featuresets: Iterable[Featureset] | None,
    env: str | None = None,
    before: Definitions | None = None,
) -> Definitions:
    """Check everything a commit contains and return the definitions the branch then has.

    Args:
        datasets: to commit.
        featuresets: to commit.
        env: selects sources, sinks, pipelines and extractors; None selects all.
        before: what is on the branch, in an incremental commit: it stays as it is unless given again, and what is given
            again needs a higher version if it has changed. None: the branch has nothing but what is given.

    Raises:
        UmbelError: of the kind of the first fault; the message lists all faults.
    """
    check_env(env)
    given = _members(datasets, Dataset, "dataset")
    described = _members(featuresets, Featureset, "featureset")
    faults = Faults("commit")
    made = _made(given, lambda each: dataset_definition(record_of(each), env), _dataset_key, faults)
    features = _made(
        described, lambda each: featureset_definition(featureset_record(each), env), _featureset_key, faults
    )
    kept = before or Definitions({}, {})
    whole = Definitions(
        {**_without(kept.datasets, map(_dataset_key, given)), **made},
        {**_without(kept.featuresets, map(_featureset_key, described)), **features},
        env,
    )
    if not faults.found:
        faults.add(*pipeline_faults(whole), *extractor_faults(whole))
    faults.add(*version_faults(kept, made, features))
    faults.check()
    return whole


def _without(old: Mapping[str, T], given: Iterable[tuple[str, Metadata]]) -> dict[str, T]:
    """Return what stays of a branch: what is given again as deleted goes."""
    gone = {name for name, meta in given if meta.deleted}
    return {name: each for name, each in old.items() if name not in gone}


def _dataset_key(dataset: Dataset) -> tuple[str, Metadata]:
    return record_of(dataset).name, record_of(dataset).meta


def _featureset_key(featureset: Featureset) -> tuple[str, Metadata]:
    return featureset_record(featureset).name, featureset_record(featureset).meta


def _members(objs: Any, kind: type[T], word: str) -> list[T]:
    if objs is not None and not isinstance(objs, Iterable):
        raise InvalidType(f"commit: {word}s must be a list, found {objs!r:.80}", hint="put it in a list")
    return [_checked(each, kind, word) for each in objs or ()]


def _checked(obj: Any, kind: type[T], word: str) -> T:
    if not isinstance(obj, kind):
        name = getattr(obj, "__name__", "")
        raise InvalidType(
            f"commit: {name or obj!r} is not a {word} but a {type(obj).__name__}",
            hint="datasets=[...] takes what @dataset made, featuresets=[...] what @featureset made",
        )
    return obj


def _made(
    objs: Sequence[T],
    define: Callable[[T], Definition],
    key: Callable[[T], tuple[str, Metadata]],
    faults: Faults,
) -> dict[str, Definition]:
    """Return the definitions by name, without those that are marked deleted."""
    made: dict[str, Definition] = {}
    for obj in objs:
        name, meta = key(obj)
        if meta.deleted:
            continue
        with faults.noted():
            definition = define(obj)
            _ = definition.fingerprint  # raises when a function cannot travel
            if name in made:
                raise InvalidValue(
                    f"commit: '{name}' is given twice",
                    where=definition.place,
                    hint="give each dataset and featureset once, under a name of its own",
                )
            made[name] = definition
    return made
