"""What queries are used for, as metrics: features by workflow, errors and latency by workflow, the feature log."""

from __future__ import annotations

import asyncio
import threading

from prometheus_client import CollectorRegistry, Counter, Histogram

from umbel.errors import UmbelError
from umbel.query.arrange import Plan

BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
MOST = 100
"""Workflows that are told apart: names come with requests, and figures must not grow with them."""
OTHER = "(other)"
EVERY = 1.0
"""Seconds between two additions to the figures of features."""


class Usage:
    """The figures of one server process.

    Args:
        registry: where they are registered.
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
        self._pending = dict[tuple[int, str], tuple[Plan, int]]()

    def answered(self, workflow: str, plan: Plan, height: int, seconds: float) -> None:
        """Note a query that was answered; its features are added up later."""
        name = self._told(workflow)
        self._known[name].observe(seconds)
        key = id(plan), name
        with self._adding:
            _, rows = self._pending.get(key, (plan, 0))
            self._pending[key] = plan, rows + height

    def failed(self, workflow: str, error: BaseException) -> None:
        """Note a query that was not."""
        code = error.code if isinstance(error, UmbelError) else "internal"
        self._errors.labels(self._told(workflow), code).inc()

    def kept(self, workflow: str, outcome: str, rows: int) -> None:
        """Note what came of rows for the feature log."""
        self._rows.labels(self._told(workflow), outcome).inc(rows)

    def add_up(self) -> None:
        """Add what was answered to the figures of each feature."""
        with self._adding:
            pending, self._pending = self._pending, {}
        for (_, workflow), (plan, rows) in pending.items():
            for fqn in plan.outputs:
                if fqn not in plan.inputs:
                    featureset, _, feature = fqn.partition(".")
                    self._features.labels(featureset, feature, workflow).inc(rows)

    async def follow(self) -> None:
        """Add up now and then, until cancelled: other processes show what this one has added up."""
        while True:
            await asyncio.sleep(EVERY)
            self.add_up()

    def _told(self, workflow: str) -> str:
        name = workflow if workflow in self._known or len(self._known) < MOST else OTHER
        if name not in self._known:
            self._known[name] = self._seconds.labels(name)
        return name
