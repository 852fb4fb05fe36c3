"""The streaming data source: it plans splits, and its rows are those splits; stage 0 opens them.

Spark's offset is the number of a batch plan (`umbel.runtime.plans`), so every batch runs exactly one plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from umbel.runtime.deployment import Deployment
from umbel.runtime.plans import PlannedSplit

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "umbel"
COLUMN = "split"


class SplitSource(DataSource):
    """Everything the committed datasets read, as splits. Option `deployment`: as JSON, where umbel keeps its things."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return f"{COLUMN} string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of plans."""
        return PlanReader(self.options["deployment"])


class PlanReader(DataSourceStreamReader):
    """Offsets are plan numbers.

    Args:
        deployment: as JSON.
    """

    def __init__(self, deployment: str) -> None:
        self._deployment = deployment
        self._plans: Any = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the offset before the first plan."""
        return {"plan": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        """Return the offset of the plan to run next."""
        return {"plan": self._opened().next(start["plan"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the splits of the plans between two offsets, one to a partition."""
        numbers = range(start["plan"] + 1, end["plan"] + 1)
        splits = [split for number in numbers for split in self._opened().read(number).splits]
        return [InputPartition([encoded(split)]) for split in splits] or [InputPartition([])]

    def commit(self, end: dict[str, int]) -> None:
        self._opened().forget(end["plan"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({COLUMN: partition.value}, schema=pa.schema([(COLUMN, pa.string())]))

    def _opened(self) -> Any:
        if self._plans is None:
            self._plans = Deployment.decode(self._deployment).plans()
        return self._plans


def encoded(split: PlannedSplit) -> str:
    """Return a split as JSON."""
    return json.dumps(asdict(split), separators=(",", ":"))


def decoded(text: str) -> PlannedSplit:
    """Return the split that `encoded` wrote."""
    return PlannedSplit(**json.loads(text))
