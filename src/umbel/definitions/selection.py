"""Selection: the content of a commit for one environment, of declared datasets and featuresets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from umbel.definitions.env import EVERY
from umbel.definitions.records import (
    DEBEZIUM,
    INSERTING,
    UPSERT,
    DatasetDefinition,
    ExtractorDefinition,
    FeaturesetDefinition,
    FunctionExtractor,
    PipelineDefinition,
    SinkDefinition,
    SourceDefinition,
)
from umbel.errors import InvalidType, InvalidValue
from umbel.operators.merge import Merge
from umbel.operators.operator import Operator

KEYED, KEYLESS = "upsert", "append"


class NoOwner(InvalidValue):
    """A committed object has no owner."""

    code = "no-owner"


def selected_dataset(dataset: DatasetDefinition, env: str | None) -> DatasetDefinition:
    """Return a declared dataset as an environment selects it, checked.

    Raises:
        UmbelError: the dataset is invalid; the message names it.
    """
    _check_owner(f"dataset '{dataset.name}'", dataset)
    sources = [each for each in dataset.sources if each.env.selects(env)]
    sinks = [each for each in dataset.sinks if each.env.selects(env)]
    alive = [each for each in dataset.pipelines if not each.meta.deleted]
    _check_pipelines(dataset, alive)
    pipelines = [each for each in alive if each.env.selects(env)]
    _check_feeds(dataset, sources, pipelines, sinks)
    inserting = {KEYED} if dataset.schema.is_keyed else INSERTING
    return replace(
        dataset,
        sources=tuple(each.declared.checked(each, dataset) if each.declared else each for each in sources),
        pipelines=(),
        output=_output(pipelines),
        sinks=tuple(replace(each, env=EVERY) for each in sinks),
        ingestion=UPSERT if all(each.cdc in inserting for each in sources) else DEBEZIUM,
    )


def selected_featureset(featureset: FeaturesetDefinition, env: str | None) -> FeaturesetDefinition:
    """Return a declared featureset as an environment selects it, checked.

    Raises:
        UmbelError: the featureset is invalid; the message names it.
    """
    _check_owner(f"featureset '{featureset.name}'", featureset)
    deleted = {each.fqn for each in featureset.features if each.meta.deleted}
    extractors = [
        replace(each, env=EVERY)
        for each in featureset.extractors
        if each.env.selects(env) and not each.meta.deleted and not deleted.issuperset(each.outputs)
    ]
    _check_once(featureset.name, extractors)
    return replace(featureset, extractors=tuple(extractors))


def _check_owner(title: str, declared: DatasetDefinition | FeaturesetDefinition) -> None:
    if not declared.meta.owner:
        hint = 'decorate it with @meta(owner="..."), or set __owner__ in its module'
        raise NoOwner(f"{title} must have an owner", where=declared.location, hint=hint)


def _check_pipelines(dataset: DatasetDefinition, pipelines: Sequence[PipelineDefinition]) -> None:
    if len(pipelines) < 2:
        return
    for each in pipelines:
        if not each.env.names:
            raise InvalidValue(
                f"dataset '{dataset.name}' has several pipelines, so each needs an env: pipeline '{each.name}' has none",
                where=each.location,
                hint='@pipeline(env="...")',
            )
    for one, other, shared in _sharing(pipelines):
        raise InvalidValue(
            f"dataset '{dataset.name}': pipelines '{one.name}' and '{other.name}' are both for env {shared}",
            where=other.location,
            hint="give each pipeline environments of its own: @pipeline(env=...)",
        )


def _sharing(pipelines: Sequence[PipelineDefinition]) -> Iterator[tuple[PipelineDefinition, PipelineDefinition, str]]:
    for location, one in enumerate(pipelines):
        for other in pipelines[location + 1 :]:
            shared = one.env.shared_with(other.env)
            if shared:
                yield one, other, shared


def _check_feeds(
    dataset: DatasetDefinition,
    sources: Sequence[SourceDefinition],
    pipelines: Sequence[PipelineDefinition],
    sinks: Sequence[SinkDefinition],
) -> None:
    title = f"dataset '{dataset.name}'"
    if sources and pipelines:
        names = ", ".join(f"'{each.name}'" for each in pipelines)
        raise InvalidValue(
            f"{title} has a source and a pipeline, {names}; it can have one or the other",
            hint="select one by env=, or put the source on a dataset of its own",
        )
    if sources and sinks:
        raise InvalidValue(
            f"{title} has a source, so it cannot have a sink ({sinks[0].connector.title})",
            hint="sink a dataset that a pipeline makes",
        )
    for number, sink in enumerate(sinks):
        if any(sink.connector.destination == other.connector.destination for other in sinks[:number]):
            raise InvalidValue(
                f"{title} has two sinks to one destination ({sink.connector.title})",
                where=sink.location,
                hint="leave one out; for rows of some times or columns only, sink a dataset of its own",
            )
    for each in sources:
        if each.cdc == KEYLESS and dataset.schema.is_keyed:
            raise InvalidValue(
                f"{title}: cdc 'append' is for datasets without keys", where=each.location, hint='use cdc="upsert"'
            )
        if each.cdc == KEYED and not dataset.schema.is_keyed:
            raise InvalidValue(
                f"{title}: cdc 'upsert' needs key fields",
                where=each.location,
                hint='use cdc="append", or mark a key: field(key=True)',
            )


def _output(pipelines: Sequence[PipelineDefinition]) -> Operator | None:
    """Return the last operator of the selected pipelines.

    Several pipelines are merged: the dataset has the rows of all. If one is terminal (its values are computed at read
    time), the last pipeline's operator is used alone.
    """
    outputs = tuple(each.output for each in pipelines)
    if len(outputs) < 2 or any(each.is_terminal for each in outputs):
        return next(reversed(outputs), None)
    return Merge(parents=outputs)


def _check_once(featureset: str, extractors: Sequence[ExtractorDefinition]) -> None:
    makers: dict[str, str] = {}
    for each in extractors:
        for feature in each.outputs:
            if feature in makers:
                raise InvalidType(
                    f"feature '{feature}' of featureset '{featureset}' is extracted by more than one extractor: "
                    f"{makers[feature]} and {_title(each)}",
                    where=each.location,
                    hint="drop one of them, or give each an env of its own",
                )
            makers[feature] = _title(each)


def _title(extractor: ExtractorDefinition) -> str:
    return f"'{extractor.name}'" if isinstance(extractor, FunctionExtractor) else "the reference in its feature(...)"
