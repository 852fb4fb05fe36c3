"""From a dataset as declared to its definition in one environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from umbel.api.commit_sources import source_definition
from umbel.api.dataset import DatasetRecord
from umbel.api.pipeline import PipelineRecord
from umbel.api.sink import SinkRecord
from umbel.api.source import SourceRecord
from umbel.errors import InvalidValue
from umbel.operators.merge import Merge
from umbel.operators.operator import Operator
from umbel.plan.definitions import DEBEZIUM, UPSERT, DatasetDefinition, Metadata, SinkDefinition

KEYED, KEYLESS = "upsert", "append"


class NoOwner(InvalidValue):
    """An object that is committed has no owner."""

    code = "no-owner"


def owned(meta: Metadata, module_owner: str, title: str, place: str) -> Metadata:
    """Return metadata with an owner: its own or the module's.

    Raises:
        NoOwner: there is neither.
    """
    owner = meta.owner or module_owner
    if not owner:
        hint = 'decorate it with @meta(owner="..."), or set __owner__ in its module'
        raise NoOwner(f"{title} must have an owner", where=place, hint=hint)
    return Metadata(owner, meta.description, meta.tags, meta.deprecated, meta.deleted)


def dataset_definition(record: DatasetRecord, env: str | None) -> DatasetDefinition:
    """Return the definition of a dataset: what an environment selects of it, checked.

    Raises:
        UmbelError: the dataset does not hold; the message names it.
    """
    meta = owned(record.meta, record.module_owner, f"dataset '{record.name}'", record.place)
    sources = [each for each in record.sources if each.env.selects(env)]
    sinks = [each for each in record.sinks if each.env.selects(env)]
    alive = [each for each in record.pipelines if not each.meta.deleted]
    _check_pipelines(record, alive)
    pipelines = [each for each in alive if each.env.selects(env)]
    _check_feeds(record, sources, pipelines, sinks)
    return DatasetDefinition(
        name=record.name,
        version=record.version,
        schema=record.schema,
        history=record.history,
        online=record.online,
        offline=record.offline,
        sources=tuple(source_definition(each, record) for each in sources),
        output=_output(pipelines),
        sinks=tuple(_sink_definition(each) for each in sinks),
        expectations=record.expectations,
        erase_keys=tuple(each.name for each in record.fields if each.erase_key),
        ingestion=DEBEZIUM if any(each.cdc not in (KEYED, KEYLESS) for each in sources) else UPSERT,
        meta=meta,
        field_meta={each.name: each.meta for each in record.fields},
        place=record.place,
    )


def _check_pipelines(record: DatasetRecord, pipelines: Sequence[PipelineRecord]) -> None:
    if len(pipelines) < 2:
        return
    for each in pipelines:
        if not each.env.names:
            raise InvalidValue(
                f"dataset '{record.name}' has several pipelines, so each needs an env: pipeline '{each.name}' has none",
                where=each.place,
                hint='@pipeline(env="...")',
            )
    for one, other, shared in _sharing(pipelines):
        raise InvalidValue(
            f"dataset '{record.name}': pipelines '{one.name}' and '{other.name}' are both for env {shared}",
            where=other.place,
            hint="give each pipeline environments of its own: @pipeline(env=...)",
        )


def _sharing(pipelines: Sequence[PipelineRecord]) -> Iterator[tuple[PipelineRecord, PipelineRecord, str]]:
    for place, one in enumerate(pipelines):
        for other in pipelines[place + 1 :]:
            shared = one.env.shared_with(other.env)
            if shared:
                yield one, other, shared


def _check_feeds(
    record: DatasetRecord,
    sources: Sequence[SourceRecord],
    pipelines: Sequence[PipelineRecord],
    sinks: Sequence[SinkRecord],
) -> None:
    title = f"dataset '{record.name}'"
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
    for each in sources:
        if each.cdc == KEYLESS and record.schema.is_keyed:
            raise InvalidValue(
                f"{title}: cdc 'append' is for datasets without keys", where=each.place, hint='use cdc="upsert"'
            )
        if each.cdc == KEYED and not record.schema.is_keyed:
            raise InvalidValue(
                f"{title}: cdc 'upsert' needs key fields",
                where=each.place,
                hint='use cdc="append", or mark a key: field(key=True)',
            )


def _output(pipelines: Sequence[PipelineRecord]) -> Operator | None:
    """Return what the selected pipelines make: the rows of all; values that are told when asked for are those of the last."""
    outputs = tuple(each.output for each in pipelines)
    if len(outputs) < 2 or any(each.is_terminal for each in outputs):
        return next(reversed(outputs), None)
    return Merge(parents=outputs)


def _sink_definition(record: SinkRecord) -> SinkDefinition:
    return SinkDefinition(
        connector=record.connector,
        cdc=record.cdc,
        every=record.every,
        how=record.how,
        renames=tuple(record.renames.items()),
        since=record.since,
        until=record.until,
        place=record.place,
    )
