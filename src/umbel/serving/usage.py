"""Usage metrics of queries: features, errors and latency by workflow, feature log rows."""

from __future__ import annotations

import asyncio
import threading

from prometheus_client import CollectorRegistry, Counter, Histogram

from umbel.errors import UmbelError
from umbel.query.arrange import QueryPlan

BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
MOST = 100
"""Workflows that are counted separately: clients choose the names, and metrics must stay bounded."""
OTHER = "(other)"
EVERY = 1.0
"""Seconds between two additions to the figures of features."""


class Usage:
    """The usage metrics of one server process.

    Args:
        registry: the registry to add them to.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["featureset", "feature", "workflow"]
        self._features = Counter("umbel_features", "Values of features answered.", labels, registry=registry)
        self._errors = Counter(
            "umbel_query_errors", "Queries refused or failed.", ["workflow", "code"], registry=registry
        )
        self._seconds = Histogram(
            "umbel_query_seconds", "Time to answer a query.", ["workflow"], buckets=BUCKETS, registry=registry
        )
        self._rows = Counter(
            "umbel_feature_log_rows", "Rows for the feature log.", ["workflow", "outcome"], registry=registry
        )
        self._known = dict[str, Histogram]()
        self._adding = threading.Lock()
        self._pending = dict[tuple[int, str], tuple[QueryPlan, int]]()

    def answered(self, workflow: str, plan: QueryPlan, height: int, seconds: float) -> None:
        """Count an answered query; its features are added up later."""
        name = self._described(workflow)
        self._known[name].observe(seconds)
        key = id(plan), name
        with self._adding:
            _, rows = self._pending.get(key, (plan, 0))
            self._pending[key] = plan, rows + height

    def failed(self, workflow: str, error: BaseException) -> None:
        """Count a query that failed."""
        code = error.code if isinstance(error, UmbelError) else "internal"
        self._errors.labels(self._described(workflow), code).inc()

    def retained(self, workflow: str, outcome: str, rows: int) -> None:
        """Count rows for the feature log by outcome."""
        self._rows.labels(self._described(workflow), outcome).inc(rows)

    def add_up(self) -> None:
        """Add the pending rows to the counter of each feature."""
        with self._adding:
            pending, self._pending = self._pending, {}
        for (_, workflow), (plan, rows) in pending.items():
            for fqn in plan.outputs:
                if fqn not in plan.inputs:
                    featureset, _, feature = fqn.partition(".")
                    self._features.labels(featureset, feature, workflow).inc(rows)

    async def follow(self) -> None:
        """Add up periodically, until cancelled; other processes export these totals."""
        while True:
            await asyncio.sleep(EVERY)
            self.add_up()

    def _described(self, workflow: str) -> str:
        name = workflow if workflow in self._known or len(self._known) < MOST else OTHER
        if name not in self._known:
            self._known[name] = self._seconds.labels(name)
        return name
