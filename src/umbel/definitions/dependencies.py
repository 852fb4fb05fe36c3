"""Checks across definitions: references must exist, and dependencies must be acyclic.

A commit is checked where it is made and by the server that takes it; graphs and queries rely on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from umbel.definitions.names import name_errors
from umbel.definitions.records import (
    AliasExtractor,
    DatasetDefinition,
    Definitions,
    ExtractorDefinition,
    FunctionExtractor,
    LookupExtractor,
)
from umbel.errors import InvalidValue, UmbelError, did_you_mean
from umbel.operators.leaf import leaves
from umbel.types.dtypes import List, Optional
from umbel.types.schema import Schema


def dependency_errors(definitions: Definitions) -> Iterator[UmbelError]:
    """Yield the errors in names, and in the references of pipelines and extractors."""
    yield from name_errors(definitions.datasets)
    yield from _pipeline_errors(definitions)
    yield from _extractor_errors(definitions)


def _pipeline_errors(definitions: Definitions) -> Iterator[UmbelError]:
    datasets = definitions.datasets
    missing: dict[str, list[str]] = defaultdict(list)
    for each in datasets.values():
        for name in each.inputs:
            if name not in datasets:
                missing[name].append(each.name)
        yield from _stale_inputs(each, datasets)
    for name, readers in missing.items():
        found = ", ".join(f"'{_pipeline(datasets[reader], name)}'" for reader in readers)
        yield InvalidValue(
            f"dataset '{name}' is an input of pipeline {found}, and is not committed{did_you_mean(name, datasets)}",
            hint="commit it as well: datasets=[...]",
        )
    circle = _circle({each.name: each.inputs for each in datasets.values()})
    if circle:
        yield InvalidValue(
            f"datasets depend on each other in a circle: {' -> '.join(circle)}",
            hint="no dataset can be made of itself: break the circle",
        )


def _pipeline(reader: DatasetDefinition, dataset: str) -> str:
    """Return `Dataset.pipeline` for a pipeline that reads a dataset."""
    stack = [reader.output]
    while stack:
        node = stack.pop()
        if node is not None and node.pipeline and any(leaf.dataset == dataset for leaf in leaves(node)):
            return node.pipeline
        stack.extend(node.parents if node is not None else ())
    return reader.name


def _stale_inputs(reader: DatasetDefinition, datasets: Mapping[str, DatasetDefinition]) -> Iterator[UmbelError]:
    for leaf in {leaf.dataset: leaf for leaf in leaves(reader.output)}.values():
        current = datasets.get(leaf.dataset)
        if current is not None and _columns(current.schema) != _columns(leaf.columns):
            yield InvalidValue(
                f"dataset '{reader.name}' reads version {leaf.version} of dataset '{leaf.dataset}', whose columns are "
                f"others in version {current.version}",
                where=reader.location,
                hint=f"commit '{reader.name}' as well, with a higher version",
            )


def _columns(schema: Schema) -> tuple[object, ...]:
    return (dict(schema.keys), dict(schema.values), schema.timestamp)


def _extractor_errors(definitions: Definitions) -> Iterator[UmbelError]:
    makers = {name: each for each in _extractors(definitions) for name in each.outputs}
    followed = _followed(definitions)
    for each in _extractors(definitions):
        yield from _missing(each, definitions, is_alias_free=each.featureset not in followed)
    circle = _circle({name: each.inputs for name, each in makers.items()})
    if circle:
        yield InvalidValue(
            f"features depend on each other in a circle, so that no extractor can begin: {' -> '.join(circle)}",
            hint="no feature can be made of itself: break the circle",
        )


def _extractors(definitions: Definitions) -> Iterator[ExtractorDefinition]:
    for featureset in definitions.featuresets.values():
        yield from featureset.extractors


def _followed(definitions: Definitions) -> set[str]:
    """Return the featuresets with Python extractors, and all featuresets they alias.

    The aliases of these must be of committed featuresets.
    """
    aliased: dict[str, set[str]] = defaultdict(set)
    found: set[str] = set()
    for each in _extractors(definitions):
        if isinstance(each, AliasExtractor):
            aliased[each.featureset].update(name.partition(".")[0] for name in each.inputs)
        elif isinstance(each, FunctionExtractor):
            found.add(each.featureset)
    todo = list(found)
    while todo:
        further = aliased[todo.pop()] - found
        found |= further
        todo += further
    return found


def _missing(each: ExtractorDefinition, definitions: Definitions, *, is_alias_free: bool) -> Iterator[UmbelError]:
    title = f"extractor '{each.name}' of featureset '{each.featureset}'"
    for name in each.datasets:
        if name not in definitions.datasets:
            known = did_you_mean(name, definitions.datasets)
            yield InvalidValue(
                f"{title} looks up dataset '{name}', which is not committed{known}",
                where=each.location,
                hint="commit it as well: datasets=[...]",
            )
    if isinstance(each, LookupExtractor) and each.dataset in definitions.datasets:
        yield from _stale_lookup(each, title, definitions)
    for feature in each.inputs:
        featureset, _, name = feature.partition(".")
        found = definitions.featuresets.get(featureset)
        if found is None and is_alias_free and isinstance(each, AliasExtractor):
            continue  # an input that queries provide
        if found is None:
            message = f"{title} reads feature '{feature}', and featureset '{featureset}' is not committed"
            yield InvalidValue(message, where=each.location, hint="commit it as well: featuresets=[...]")
        elif name not in found.by_name:
            yield InvalidValue(
                f"{title} reads feature '{feature}', which does not exist",
                where=each.location,
                hint="name one of its features",
            )


def _stale_lookup(each: LookupExtractor, title: str, definitions: Definitions) -> Iterator[UmbelError]:
    """Yield what a dataset that was committed without its featureset lacks for a lookup."""
    dataset = definitions.datasets[each.dataset]
    title = f"{title} looks up '{each.dataset}.{each.field}'"
    version, schema = f"version {dataset.version} of dataset '{each.dataset}'", dataset.schema
    output = each.outputs[0].partition(".")[2]
    found = schema.dtypes.get(each.field)
    if set(each.keys) != set(schema.key_names):
        reason = f"by {_names(each.keys)}, and {version} has the keys {_names(schema.key_names)}"
    elif found is None:
        reason = f"and {version} has no such field{did_you_mean(each.field, schema.dtypes)}"
    elif not (dataset.online or dataset.offline):
        reason = f"and {version} has no index"
    else:
        value = found.base if each.default is not None else Optional(found.base)
        expected = List(value) if each.is_list else value
        declared = definitions.featuresets[each.featureset].by_name[output].dtype
        if declared == expected:
            return
        reason = f"for a feature of type {declared}, and with {version} it is of type {expected}"
    yield InvalidValue(f"{title} {reason}", where=each.location, hint=f"commit '{each.featureset}' as well")


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


def _circle(edges: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the names on some cycle, the first repeated at the end.

    Empty when the graph is acyclic.
    """
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []
