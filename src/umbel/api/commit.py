"""Commit checks, and the frozen definitions a commit produces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from umbel.api.dataset import Dataset, record_of
from umbel.api.featureset import Featureset, featureset_record
from umbel.definitions.dependencies import dependency_errors
from umbel.definitions.env import check_env
from umbel.definitions.records import DatasetDefinition, Definitions, FeaturesetDefinition
from umbel.definitions.selection import selected_dataset, selected_featureset
from umbel.definitions.versions import version_errors
from umbel.errors import ErrorCollector, InvalidType, InvalidValue

T = TypeVar("T")
Definition = TypeVar("Definition", DatasetDefinition, FeaturesetDefinition)


def check_commit(
    datasets: Iterable[Dataset] | None,
    featuresets: Iterable[Featureset] | None,
    env: str | None = None,
    before: Definitions | None = None,
) -> Definitions:
    """Check everything a commit contains and return the branch's resulting definitions.

    Args:
        datasets: to commit.
        featuresets: to commit.
        env: selects sources, sinks, pipelines and extractors; None selects all.
        before: the branch's definitions, in an incremental commit: each stays unless it is committed again, and a changed
            one needs a higher version. None: the branch consists of the committed objects alone.

    Raises:
        UmbelError: of the class of the first error; the message lists all errors.
    """
    check_env(env)
    provided = [record_of(each) for each in _members(datasets, Dataset, "dataset")]
    described = [featureset_record(each) for each in _members(featuresets, Featureset, "featureset")]
    errors = ErrorCollector("commit")
    made = _made(provided, lambda each: selected_dataset(each, env), errors)
    features = _made(described, lambda each: selected_featureset(each, env), errors)
    retained = before or Definitions({}, {})
    whole = Definitions(
        {**_without(retained.datasets, provided), **made},
        {**_without(retained.featuresets, described), **features},
        env,
    )
    if not errors.found:
        errors.add(*dependency_errors(whole))
    errors.add(*version_errors(retained, made, features))
    errors.check()
    return whole


def _without(old: Mapping[str, Definition], provided: Iterable[Definition]) -> dict[str, Definition]:
    """Return a branch's definitions without the objects committed as deleted."""
    gone = {each.name for each in provided if each.meta.deleted}
    return {name: each for name, each in old.items() if name not in gone}


def _members(objs: Any, kind: type[T], word: str) -> list[T]:
    if objs is not None and not isinstance(objs, Iterable):
        raise InvalidType(f"commit: {word}s must be a list, found {objs!r:.80}", hint="put it in a list")
    return [_checked(each, kind, word) for each in objs or ()]


def _checked(obj: Any, kind: type[T], word: str) -> T:
    if not isinstance(obj, kind):
        name = getattr(obj, "__name__", "")
        raise InvalidType(
            f"commit: {name or obj!r} is no {word}, but of type {type(obj).__name__}",
            hint="datasets=[...] takes what @dataset made, featuresets=[...] what @featureset made",
        )
    return obj


def _check_travels(definition: Definition) -> None:
    """Refuse a definition that cannot be pickled or is nested too deeply."""
    try:
        _ = definition.fingerprint
    except RecursionError as error:
        raise InvalidValue(
            f"commit: '{definition.name}': an expression has too many operators in each other, or a pipeline too many in a row",
            where=definition.location,
            hint="compute it in steps: parts of an expression as features or columns of their own, rows in further datasets",
        ) from error


def _made(
    declared: Iterable[Definition], select: Callable[[Definition], Definition], errors: ErrorCollector
) -> dict[str, Definition]:
    """Return the selected definitions by name, without objects marked as deleted."""
    made: dict[str, Definition] = {}
    for each in declared:
        if each.meta.deleted:
            continue
        with errors.noted():
            definition = select(each)
            _check_travels(definition)
            if each.name in made:
                raise InvalidValue(
                    f"commit: '{each.name}' is given twice",
                    where=definition.location,
                    hint="give each dataset and featureset once, under a name of its own",
                )
            made[each.name] = definition
    return made
