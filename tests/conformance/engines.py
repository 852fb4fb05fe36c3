"""The engines that run the cases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pandas as pd

from tests.conformance.case import Case, Row
from umbel.testing import MockClient


class InProcess:
    """The mock client: everything in process."""

    def __init__(self, case: Case) -> None:
        self.client = MockClient()
        self.client.commit(message=case.name, datasets=list(case.datasets), featuresets=list(case.featuresets))

    def log(self, dataset: str, rows: Sequence[Row]) -> None:
        self.client.log_to(dataset, pd.DataFrame(list(rows)))

    def table(self, dataset: str) -> list[Row]:
        return plain(self.client.get_dataset_df(dataset))

    def lookup(self, dataset: str, keys: Sequence[Row], at: Sequence[datetime]) -> list[tuple[Row, bool]]:
        rows, found = self.client.lookup(dataset, pd.DataFrame(list(keys)), timestamps=pd.Series(list(at)))
        return list(zip(plain(rows), found.tolist(), strict=True))

    def query(
        self, inputs: Sequence[str], outputs: Sequence[str], rows: Sequence[Row], at: Sequence[datetime] | None
    ) -> list[Row]:
        frame = pd.DataFrame(list(rows))
        if at is None:
            return plain(self.client.query(inputs, outputs, frame))
        return plain(self.client.query_offline(inputs, outputs, "at", frame.assign(at=list(at))))


ENGINES = {"in-process": InProcess}


def plain(df: pd.DataFrame) -> list[Row]:
    """Return the rows of a pandas frame as Python values; null is None, a window a pair."""
    return [{name: _value(value) for name, value in row.items()} for row in df.to_dict("records")]


def _value(value: Any) -> Any:
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime()
    if isinstance(value, list):
        return [_value(each) for each in value]
    if hasattr(value, "begin") and hasattr(value, "end"):
        return (_value(value.begin), _value(value.end))
    return None if value is pd.NA or value is pd.NaT else value
