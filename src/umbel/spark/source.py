"""The streaming data source: its offsets are batch plan numbers, and it has no rows.

Spark's offset is the number of a batch plan (`umbel.runtime.plans`), so every batch runs exactly one plan. The plan's splits are
opened by stage 0, which the job builds itself: a source's own partition readers would each cost a Python process more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "umbel"


class PlanSource(DataSource):
    """The plans of a deployment. Option `deployment`: the deployment, as JSON."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "plan long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of plans."""
        return PlanReader(self.options["deployment"])


class PlanReader(DataSourceStreamReader):
    """Reads plan numbers as offsets.

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
        """Return one partition, which is never read."""
        return [InputPartition(None)]

    def commit(self, end: dict[str, int]) -> None:
        self._opened().forget(end["plan"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from ()

    def _opened(self) -> Any:
        if self._plans is None:
            from umbel.runtime.deployment import Deployment  # not in every process that Spark sends this class to

            self._plans = Deployment.decode(self._deployment).plans()
        return self._plans
