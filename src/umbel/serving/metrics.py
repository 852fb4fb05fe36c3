"""Metrics in Prometheus' text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from umbel.serving.service import Service

BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """What this process has measured, and what the catalog knows of the jobs."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ["route", "status"]
        self._seconds = Histogram(
            "umbel_request_seconds", "Time to answer a request.", labels, buckets=BUCKETS, registry=self._registry
        )
        self._rows = Counter("umbel_logged_rows", "Rows accepted by webhooks.", registry=self._registry)
        self._counts = Gauge(
            "umbel_dataset_rows",
            "Rows by dataset and what came of them.",
            ["dataset", "outcome"],
            registry=self._registry,
        )
        self._revision = Gauge("umbel_revision", "The revision in force.", registry=self._registry)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Note a request."""
        self._seconds.labels(route, str(status)).observe(seconds)

    def logged(self, rows: int) -> None:
        """Note rows accepted."""
        self._rows.inc(rows)

    def text(self, service: Service) -> bytes:
        """Return everything as text."""
        for (dataset, outcome), count in service.deployment.catalog.counts().items():
            self._counts.labels(dataset, outcome).set(count)
        self._revision.set(service.current.revision)
        return generate_latest(self._registry)
