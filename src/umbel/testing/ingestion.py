"""Row ingestion into a branch, through an endpoint or directly into a dataset.

Rows of an endpoint are what a server would read of them. A client sends JSON, in which an instant is a text, and so is a decimal.
Only columns that this does not change are taken as they are. A column that the source reads must be there, also one of an
Optional type, which a row of JSON may leave out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from umbel.client.plain import columns
from umbel.connectors.webhook import MAX_BODY
from umbel.definitions.records import DatasetDefinition, SourceDefinition
from umbel.errors import InvalidType
from umbel.formats.json_lines import JsonLines
from umbel.ingestion.rows import needed, prepare, requested
from umbel.testing.branch import Fed, MockBranch
from umbel.types.dtype import DType
from umbel.types.pandas import raw_from_pandas
from umbel.types.raw import REJECTS, Raw
from umbel.types.validate import refuse_rejects, validate

if TYPE_CHECKING:
    import pandas as pd

Feed = tuple[DatasetDefinition, SourceDefinition]


def accepted(branch: MockBranch, webhook: str, endpoint: str, df: pd.DataFrame) -> list[Fed] | None:
    """Return the rows ingested per dataset of an endpoint; None for no dataset.

    Raises:
        InvalidValue: a row does not fit the schema of one of them.
    """
    feeds = list(_fed_by(branch, webhook, endpoint))
    if not feeds:
        return None
    raw = Raw(raw_from_pandas(df), pl.DataFrame(schema=REJECTS))
    open_feeds = (each for each in feeds if len(df) and not _is_over(each[1], branch.committed_at))
    return [(dataset.name, _taken(df, raw, source, dataset)) for dataset, source in open_feeds]


def direct(dataset: DatasetDefinition, df: pd.DataFrame) -> pl.DataFrame:
    """Return rows for a dataset in storage types, without any source's preproc."""
    validated = validate(raw_from_pandas(df), dataset.dtypes)
    refuse_rejects(validated, dataset.dtypes, dataset.name)
    return validated.frame


def _taken(df: pd.DataFrame, raw: Raw, source: SourceDefinition, dataset: DatasetDefinition) -> pl.DataFrame:
    # Tests ingest a handful of rows and expect to find them; dropping some by sample or period would be surprising.
    source = replace(source, sample=None, since=None, until=None)
    if needed(source, dataset) - set(raw.frame.columns):
        _valid(raw, replace(source, where=None), dataset)  # whatever `where` makes of the rows
        return _valid(raw, source, dataset)
    if _is_sent_as_it_is(raw.frame, source, dataset):
        return _valid(raw, source, dataset)
    try:
        received = _received(df, source, dataset)
    except InvalidType:
        _valid(raw, source, dataset)  # names the column, if that has no such values at all
        raise
    return _valid(received, source, dataset)


def _valid(raw: Raw, source: SourceDefinition, dataset: DatasetDefinition) -> pl.DataFrame:
    validated = prepare(raw, source, dataset)
    refuse_rejects(validated, dataset.dtypes, dataset.name)
    return validated.frame


def _received(df: pd.DataFrame, source: SourceDefinition, dataset: DatasetDefinition) -> Raw:
    """Return rows as a server reads them.

    Raises:
        InvalidType: a value has no JSON form.
    """
    data = columns(df)
    rows = [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]
    lines = [json.dumps(row, allow_nan=False).encode() for row in rows]
    return JsonLines(requested(source, dataset), exact=False, longest=MAX_BODY).whole(lines)


def _is_sent_as_it_is(frame: pl.DataFrame, source: SourceDefinition, dataset: DatasetDefinition) -> bool:
    """Return whether a server gets the same columns."""
    if source.preproc or source.where is not None or source.transform is not None or source.cdc == "debezium":
        return False
    return all(_is_same(column, dataset.dtypes.get(column.name)) for column in frame)


def _is_same(column: pl.Series, dtype: DType | None) -> bool:
    if dtype is None:
        return column.dtype != pl.Object
    own = dtype.polars()
    if column.dtype.is_numeric() and own.is_numeric() and not own.is_decimal():
        return not column.dtype.is_decimal()
    return column.dtype in (own, pl.Null) or (isinstance(column.dtype, pl.Datetime) and isinstance(own, pl.Datetime))


def _fed_by(branch: MockBranch, webhook: str, endpoint: str) -> Iterator[Feed]:
    for dataset in branch.definitions.datasets.values():
        for source in dataset.sources:
            connector = source.connector
            is_webhook = connector.kind == "webhook" and connector.source_name == webhook
            if is_webhook and getattr(connector, "endpoint", None) == endpoint:
                yield dataset, source


def _is_over(source: SourceDefinition, committed_at: datetime) -> bool:
    """Return True if a bounded source has exceeded its idleness.

    The time counts from the commit.
    """
    return source.idleness is not None and datetime.now(UTC) - committed_at >= timedelta(microseconds=source.idleness)
