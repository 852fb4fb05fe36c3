"""Redaction of the rows of sources in umbel's folder: ingest logs and staged rows.

Rows are read as a batch reads them, so that a row is recognised whatever its source calls its columns, but without the conditions
under which a batch takes it in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from umbel.api.secrets import provide_secrets
from umbel.catalog.purges import Mentions
from umbel.connectors.staged_source import StagedSource
from umbel.connectors.webhook import EndpointSource
from umbel.definitions.records import DatasetDefinition, SourceDefinition
from umbel.functions.guarding import guarded
from umbel.graph.graph import Graph
from umbel.ingestion.rows import prepare, requested
from umbel.log.redaction import finish_redaction, redact
from umbel.query.erasure import ErasedKeys
from umbel.runtime.guard import WorkerGuard
from umbel.runtime.recovery.cut import ingest_logs
from umbel.runtime.sources import OpenedSource, column_of, open_sources

if TYPE_CHECKING:
    from pathlib import Path

    from umbel.formats.raw_batch import RawBatch
    from umbel.runtime.deployment import Deployment
    from umbel.types.dtype import DType
    from umbel.types.raw import Raw


def finish_redactions(directory: Path) -> None:
    """Write again what interrupted redactions of ingest logs were writing.

    Args:
        directory: umbel's folder; no purge is running.
    """
    for _, log in ingest_logs(directory):
        finish_redaction(log)


def redact_ingest_logs(
    deployment: Deployment, graph: Graph, erased: Mapping[str, ErasedKeys], mentions: Mentions
) -> tuple[int, list[str]]:
    """Redact the ingest logs of datasets; return the number of rows, and notes.

    Args:
        deployment: the deployment; no batch is running.
        graph: of all commits in force.
        erased: the erased keys, by dataset.
        mentions: recognises erased keys in rows that were rejected.
    """
    provide_secrets(deployment.vault)
    readers: dict[Path, list[OpenedSource]] = {}
    for each in open_sources(deployment.directory, graph):
        if isinstance(each.reading, EndpointSource):
            readers.setdefault(each.reading.log, []).append(each)
    done, notes = 0, list[str]()
    for log, sources in sorted(readers.items()):
        own = [each for each in sources if each.dataset in erased]
        if not own:
            continue
        with guarded(WorkerGuard(deployment, is_marked=False)):
            numbers = {each.dataset: _rows(each, graph, erased[each.dataset], mentions) for each in own}
        others = sorted({each.dataset for each in sources} - numbers.keys())
        title, found = f"{log.parent.name}/{log.name}", set[int]().union(*numbers.values())
        if others:
            if found:
                notes.append(
                    f"{len(found)} events of {title} stay for its retention: {', '.join(others)} reads them, too"
                )
            continue
        rows = set.intersection(*numbers.values())
        done += redact(log, rows)
        if found - rows:
            notes.append(
                f"{len(found - rows)} events of {title} stay: they are not erased from all of {sorted(numbers)}"
            )
    return done, notes


def _rows(source: OpenedSource, graph: Graph, erased: ErasedKeys, mentions: Mentions) -> set[int]:
    """Return the numbers of the rows of an ingest log that have erased keys."""
    dataset, reading, found = graph.datasets[source.dataset], source.reading, set[int]()
    definition = replace(source.definition, where=None, sample=None, since=None, until=None)
    assert isinstance(reading, EndpointSource)
    splits, _ = reading.plan(None, 1 << 62)
    for split, _ in splits:
        for batch in reading.open(split, requested(definition, dataset), exact=False):
            if batch.is_damage:
                continue
            validated = prepare(batch.raw, definition, dataset)
            hits = erased.hits(validated.frame)
            found.update(batch.numbers(validated.accepted.filter(hits)).to_list())
            if mentions:
                found.update(_mentioned(batch, validated.rejects, mentions))
    return found


def _mentioned(batch: RawBatch, rejects: pl.DataFrame, mentions: Mentions) -> Iterator[int]:
    rows = rejects["row"].unique()
    for row, number in zip(rows.to_list(), batch.numbers(rows).to_list(), strict=True):
        if mentions(batch.text(row)):
            yield number


def redact_staged(deployment: Deployment, graph: Graph, erased: Mapping[str, ErasedKeys], mentions: Mentions) -> int:
    """Redact the staged rows of datasets; return how many are gone.

    Args:
        deployment: the deployment; no batch is running.
        graph: of all commits in force.
        erased: the erased keys, by dataset.
        mentions: recognises erased keys in messages that were rejected.
    """
    done = 0
    for each in open_sources(deployment.directory, graph):
        keys, reading = erased.get(each.dataset), each.reading
        if keys is None or not isinstance(reading, StagedSource) or not reading.stage.numbers():
            continue
        mask = partial(_staged, keys, mentions, graph.datasets[each.dataset], each.definition, reading)
        with guarded(WorkerGuard(deployment, is_marked=False)):
            done += reading.stage.redact(mask)
    return done


def _staged(
    keys: ErasedKeys,
    mentions: Mentions,
    dataset: DatasetDefinition,
    source: SourceDefinition,
    reading: StagedSource,
    rows: pl.DataFrame,
) -> pl.Series:
    """Return which staged rows have erased keys."""
    messages = reading.messages_of(rows)
    if messages is not None:
        definition = replace(source, where=None, sample=None, since=None, until=None)
        raws = reading.rows_of(rows, requested(definition, dataset), exact=False)
        gone = set(_messages(keys, mentions, dataset, definition, raws, messages))
        return pl.Series([row in gone for row in range(rows.height)], dtype=pl.Boolean)
    names = {name: column_of(name, source) for name in keys.columns}
    columns = reading.fields_of(rows, [name for name in names.values() if name is not None])
    if not all(name in columns.columns for name in names.values()):
        return pl.Series([False]).new_from_index(0, rows.height)
    return keys.hits(pl.DataFrame([_cast(columns[old or ""], dataset.dtypes[new], new) for new, old in names.items()]))


def _cast(column: pl.Series, dtype: DType, name: str) -> pl.Series:
    """Return a column in a type; what has no such value becomes null."""
    if column.dtype == pl.Object:
        return dtype.convert_objects(column.to_list()).values.alias(name)
    return column.cast(dtype.polars(), strict=False).alias(name)


def _messages(
    keys: ErasedKeys,
    mentions: Mentions,
    dataset: DatasetDefinition,
    source: SourceDefinition,
    raws: Iterator[Raw],
    messages: pl.Series,
) -> Iterator[int]:
    """Yield the staged messages that have erased keys."""
    first = 0
    for raw in raws:
        validated = prepare(raw, source, dataset)
        for row in validated.accepted.filter(keys.hits(validated.frame)):
            yield first + row
        for row in validated.rejects["row"].unique():
            if mentions and mentions(messages[first + row] or b""):
                yield first + row
        first += raw.frame.height
