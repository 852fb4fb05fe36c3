"""Metrics in Prometheus' text format."""

from __future__ import annotations

import os
import sys

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

from umbel.plan.expecting import PREFIX, Counts, results
from umbel.runtime.deployment import JOB
from umbel.serving.environment import SHARED
from umbel.serving.service import Service
from umbel.serving.usage import BUCKETS, Usage


class Metrics:
    """What the server has measured, and what the catalog knows of the jobs."""

    def __init__(self) -> None:
        own = self._own = CollectorRegistry()
        self.usage = Usage(own)
        labels = ["route", "status"]
        self._seconds = Histogram(
            "umbel_request_seconds", "Time to answer a request.", labels, buckets=BUCKETS, registry=own
        )
        self._known: dict[tuple[str, int], Histogram] = {}
        self._accepted = Counter(
            "umbel_logged_rows", "Rows accepted by webhooks.", ["webhook", "endpoint"], registry=own
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Note a request."""
        known = self._known.get((route, status))
        if known is None:
            known = self._known[route, status] = self._seconds.labels(route, str(status))
        known.observe(seconds)

    def logged(self, webhook: str, endpoint: str, rows: int) -> None:
        """Note rows accepted."""
        self._accepted.labels(webhook, endpoint).inc(rows)

    def text(self, service: Service) -> bytes:
        """Return everything as text: of all server processes, where there are several."""
        self.usage.add_up()
        measured = self._own
        if os.environ.get(SHARED):
            measured = CollectorRegistry()
            multiprocess.MultiProcessCollector(measured)  # type: ignore[no-untyped-call]
        return bytes(generate_latest(measured) + generate_latest(_of_jobs(service)) + generate_latest(REGISTRY))


def _of_jobs(service: Service) -> CollectorRegistry:
    """Return what the catalog knows; the same in every process."""
    registry, catalog = CollectorRegistry(), service.deployment.catalog
    rows = Gauge(
        "umbel_dataset_rows", "Rows by dataset and what came of them.", ["dataset", "outcome"], registry=registry
    )
    counts = catalog.counts()
    for (dataset, outcome), count in counts.items():
        if not outcome.startswith(PREFIX):
            rows.labels(dataset, outcome).set(count)
    _expectations(registry, service, counts)
    Gauge("umbel_revision", "The revision in force.", registry=registry).set(service.current.revision)
    last = catalog.progress(JOB, sys.maxsize)
    if last is not None:
        Gauge("umbel_batch", "The last batch finished.", registry=registry).set(last.number)
        told = "The largest event time taken from a source, in seconds since the epoch."
        newest = Gauge("umbel_source_newest_seconds", told, ["source"], registry=registry)
        for source, micros in last.state.get("newest", {}).items():
            newest.labels(source).set(micros / 1e6)
    return registry


def _expectations(registry: CollectorRegistry, service: Service, counts: Counts) -> None:
    labels = ["dataset", "version", "number", "expectation", "columns"]
    told = "Rows an expectation has judged, by what came of them."
    rows = Gauge("umbel_expectation_rows", told, [*labels, "outcome"], registry=registry)
    told = "Whether as many rows pass an expectation as must."
    holds = Gauge("umbel_expectation_holds", told, labels, registry=registry)
    in_force = service.current
    for name, dataset in in_force.definitions.datasets.items():
        for number, each in enumerate(results(dataset, in_force.graph.names[name], counts)):
            seen = each.watched
            named = (name, str(each.version), str(number), seen.expectation, ",".join(seen.columns))
            rows.labels(*named, "passed").set(seen.rows - seen.failed)
            rows.labels(*named, "failed").set(seen.failed)
            holds.labels(*named).set(seen.holds)
