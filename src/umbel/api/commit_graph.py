"""What is referred to must exist, and nothing may depend on itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from umbel.errors import InvalidValue, UmbelError, did_you_mean
from umbel.plan.definitions import DatasetDefinition, Definitions, ExtractorDefinition, leaves
from umbel.types.schema import Schema


def pipeline_faults(definitions: Definitions) -> Iterator[UmbelError]:
    """Yield what is wrong with the inputs of pipelines."""
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
    """Return `Dataset.pipeline` of a pipeline that reads a dataset."""
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
                where=reader.place,
                hint=f"commit '{reader.name}' as well, with a higher version",
            )


def _columns(schema: Schema) -> tuple[object, ...]:
    return (dict(schema.keys), dict(schema.values), schema.timestamp)


def extractor_faults(definitions: Definitions) -> Iterator[UmbelError]:
    """Yield what is wrong with what extractors read."""
    makers = {name: each for each in _extractors(definitions) for name in each.outputs}
    for each in _extractors(definitions):
        yield from _missing(each, definitions)
    circle = _circle({name: each.inputs for name, each in makers.items()})
    if circle:
        yield InvalidValue(
            f"features depend on each other in a circle, so that no extractor can begin: {' -> '.join(circle)}",
            hint="no feature can be made of itself: break the circle",
        )


def _extractors(definitions: Definitions) -> Iterator[ExtractorDefinition]:
    for featureset in definitions.featuresets.values():
        yield from featureset.extractors


def _missing(each: ExtractorDefinition, definitions: Definitions) -> Iterator[UmbelError]:
    title = f"extractor '{each.name}' of featureset '{each.featureset}'"
    for name in each.datasets:
        if name not in definitions.datasets:
            known = did_you_mean(name, definitions.datasets)
            yield InvalidValue(
                f"{title} looks up dataset '{name}', which is not committed{known}",
                where=each.place,
                hint="commit it as well: datasets=[...]",
            )
    for feature in each.inputs:
        featureset, _, name = feature.partition(".")
        found = definitions.featuresets.get(featureset)
        if found is None:
            message = f"{title} reads feature '{feature}', and featureset '{featureset}' is not committed"
            yield InvalidValue(message, where=each.place, hint="commit it as well: featuresets=[...]")
        elif name not in {known.name for known in found.features}:
            yield InvalidValue(
                f"{title} reads feature '{feature}', which does not exist",
                where=each.place,
                hint="name one of its features",
            )


def _circle(edges: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the names on some circle, the first again at the end; empty when there is none."""
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done or name not in edges:
            return []
        path.append(name)
        found = next(filter(None, map(visit, edges[name])), list[str]())
        path.pop()
        done.add(name)
        return found

    return next(filter(None, map(visit, edges)), list[str]())
