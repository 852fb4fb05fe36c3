"""Row ingestion into a branch, through an endpoint or directly into a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from umbel.definitions.records import DatasetDefinition, SourceDefinition
from umbel.ingestion.rows import prepare
from umbel.testing.branch import Fed, MockBranch
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
    return [(dataset.name, _taken(raw, source, dataset)) for dataset, source in open_feeds]


def direct(dataset: DatasetDefinition, df: pd.DataFrame) -> pl.DataFrame:
    """Return rows for a dataset in storage types, without any source's preproc."""
    validated = validate(raw_from_pandas(df), dataset.dtypes)
    refuse_rejects(validated, dataset.dtypes, dataset.name)
    return validated.frame


def _taken(raw: Raw, source: SourceDefinition, dataset: DatasetDefinition) -> pl.DataFrame:
    # Tests ingest a handful of rows and expect to find them; dropping some by sample or period would be surprising.
    validated = prepare(raw, replace(source, sample=None, since=None, until=None), dataset)
    refuse_rejects(validated, dataset.dtypes, dataset.name)
    return validated.frame


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
