"""Metrics in Prometheus' text format."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

from umbel.errors import Damaged
from umbel.quality.totals import PREFIX, Counts
from umbel.runtime.dead_letters import REASON
from umbel.runtime.deployment import JOB
from umbel.runtime.freshness import Lag, lags
from umbel.runtime.health import STATES, health
from umbel.runtime.log_sizes import log_sizes
from umbel.runtime.retention import retained_logs
from umbel.runtime.sink_lags import sink_lags
from umbel.runtime.source_lags import source_lags
from umbel.runtime.switching import switches
from umbel.serving.environment import SHARED
from umbel.serving.service import Service
from umbel.serving.usage import BUCKETS, Usage

Lags = Callable[[], Mapping[tuple[str, str], Lag]]
"""Returns the lag of every endpoint."""
Part = Callable[[CollectorRegistry, Service], None]
"""Adds a part of the metrics."""
log = logging.getLogger("umbel")


class Metrics:
    """The server's own metrics, and those of the jobs, from the catalog."""

    def __init__(self) -> None:
        own = self._own = CollectorRegistry()
        self.usage = Usage(own)
        labels = ["route", "status"]
        self._seconds = Histogram(
            "umbel_request_seconds", "Time to answer a request.", labels, buckets=BUCKETS, registry=own
        )
        self._known: dict[tuple[str, int], Histogram] = {}
        self._damaged = Counter(
            "umbel_damage", "Requests refused for damage of what is stored.", ["route"], registry=own
        )
        self._accepted = Counter(
            "umbel_logged_rows", "Rows accepted by webhooks.", ["webhook", "endpoint"], registry=own
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request and its latency."""
        known = self._known.get((route, status))
        if known is None:
            known = self._known[route, status] = self._seconds.labels(route, str(status))
        known.observe(seconds)

    def damaged(self, route: str) -> None:
        """Count a request refused because of damaged data."""
        self._damaged.labels(route).inc()

    def logged(self, webhook: str, endpoint: str, rows: int) -> None:
        """Count accepted rows."""
        self._accepted.labels(webhook, endpoint).inc(rows)

    def text(self, service: Service) -> bytes:
        """Return all metrics as text, merged over all server processes."""
        self.usage.add_up()
        measured = self._own
        if os.environ.get(SHARED):
            measured = CollectorRegistry()
            multiprocess.MultiProcessCollector(measured)  # type: ignore[no-untyped-call]
        jobs = b"".join(map(generate_latest, _of_jobs(service)))
        return bytes(generate_latest(measured) + jobs + generate_latest(REGISTRY))


def _of_jobs(service: Service) -> Iterator[CollectorRegistry]:
    """Yield the parts of the metrics from the catalog and the folder.

    They are the same in every process. What is damaged hides no other part: it is then that somebody looks at them.
    """
    is_away = service.deployment.is_away
    missing = CollectorRegistry()
    report = "1 for a part of the metrics that cannot be told, for what it is read from is damaged."
    gauge = Gauge("umbel_metrics_missing", report, ["part"], registry=missing)
    behind = cache(partial(lags, service.deployment))  # two parts have it
    parts: dict[str, Part] = {"worker": partial(_worker, behind), "lag": partial(_lag, behind), **_PARTS}
    for part, add in parts.items():
        if is_away and part in _OF_THE_WORKER:
            continue
        registry = CollectorRegistry()
        try:
            add(registry, service)
        except (Damaged, OSError) as error:
            log.error("the metrics of the %s are missing: %s", part, error)
            gauge.labels(part).set(1)
        else:
            gauge.labels(part).set(0)
            yield registry
    yield missing


def _datasets(registry: CollectorRegistry, service: Service) -> None:
    """Add the rows of datasets, dead letters and expectations."""
    rows = Gauge(
        "umbel_dataset_rows", "Rows by dataset and what came of them.", ["dataset", "outcome"], registry=registry
    )
    counts = service.deployment.catalog.counts()
    for (dataset, outcome), count in counts.items():
        if not outcome.startswith((PREFIX, REASON)):
            rows.labels(dataset, outcome).set(count)
    _expectations(registry, service, counts)
    _dead_letters(registry, counts)
    Gauge("umbel_revision", "The revision in force.", registry=registry).set(service.current.revision)


def _batches(registry: CollectorRegistry, service: Service) -> None:
    """Add the last batch, and the newest event times."""
    last = service.deployment.catalog.progress(JOB, sys.maxsize)
    if last is not None:
        Gauge("umbel_batch", "The last batch finished.", registry=registry).set(last.number)
        report = "The largest event time taken from a source, in seconds since the epoch."
        newest = Gauge("umbel_source_newest_seconds", report, ["source"], registry=registry)
        for source, micros in last.state.get("newest", {}).items():
            newest.labels(source).set(micros / 1e6)


def _state(registry: CollectorRegistry, service: Service) -> None:
    """Add the sizes of the state, and the work of its maintenance."""
    rows = Gauge(
        "umbel_state_rows", "Stored rows, those included that a merge will drop.", ["shard"], registry=registry
    )
    report = "Bytes of state, by shard and part: journal, runs, or memory (to be written as runs)."
    size = Gauge("umbel_state_bytes", report, ["shard", "part"], registry=registry)
    runs = Gauge("umbel_state_runs", "Runs of state, by shard and tier.", ["shard", "tier"], registry=registry)
    report = "How often maintenance has written runs, by shard: flushes of memory, and merges of runs."
    work = Gauge("umbel_state_maintenance", report, ["shard", "work"], registry=registry)
    report = "Bytes that maintenance has written, by shard: with flushes, and with merges of runs."
    written = Gauge("umbel_state_written_bytes", report, ["shard", "work"], registry=registry)
    for each in service.deployment.store.sizes():
        shard = str(each.shard)
        rows.labels(shard).set(each.entries)
        if each.files is None:
            size.labels(shard, "memory").set(each.size)
            continue
        parts = {"journal": each.files.journal, "runs": each.files.run_bytes, "memory": each.files.memory}
        for part, found in parts.items():
            size.labels(shard, part).set(found)
        for tier, count in each.files.runs.items():
            runs.labels(shard, str(tier)).set(count)
        done = each.files.written
        for name, times, bytes_ in (("flush", done.flushes, done.flushed), ("merge", done.merges, done.merged)):
            work.labels(shard, name).set(times)
            written.labels(shard, name).set(bytes_)


def _disk(registry: CollectorRegistry, service: Service) -> None:
    """Add the deployment's disk and its free part."""
    disk = shutil.disk_usage(service.deployment.directory)
    Gauge("umbel_disk_bytes", "Size of the disk of the deployment.", registry=registry).set(disk.total)
    report = "Bytes of the disk of the deployment that are free."
    Gauge("umbel_disk_free_bytes", report, registry=registry).set(disk.free)


def _logs(registry: CollectorRegistry, service: Service) -> None:
    """Add the sizes of logs, and from when on they are complete."""
    size = Gauge("umbel_log_bytes", "Bytes of a log: ingest, changes or features.", ["log", "name"], registry=registry)
    report = "The oldest instant in a log, in seconds since the epoch."
    oldest = Gauge("umbel_log_oldest_seconds", report, ["log", "name"], registry=registry)
    for each in log_sizes(service.deployment.directory):
        size.labels(each.kind, each.name).set(each.size)
        if each.oldest is not None:
            oldest.labels(each.kind, each.name).set(each.oldest)
    report = "The instant from which on a change log has all changes, in seconds since the epoch; only of logs that were cut."
    retained = Gauge("umbel_change_log_retained_seconds", report, ["name"], registry=registry)
    for name, since in retained_logs(service.deployment).items():
        retained.labels(name).set(since)


def _backfills(registry: CollectorRegistry, service: Service) -> None:
    """Add the backfill progress of each branch with an unserved last commit."""
    share = Gauge(
        "umbel_backfill_share",
        "Which share of its backfill is done, of each branch whose last commit does not serve yet.",
        ["branch", "serving", "committed"],
        registry=registry,
    )
    report = "Whether its backfill has failed and waits to be tried again."
    failing = Gauge("umbel_backfill_failing", report, ["branch"], registry=registry)
    labels = ["branch", "serving", "committed"]
    report = "Rows of history that a backfill has read."
    done = Gauge("umbel_backfill_rows_done", report, labels, registry=registry)
    report = "Rows of history that a backfill reads in all; 0 as long as they are not counted."
    total = Gauge("umbel_backfill_rows_total", report, labels, registry=registry)
    report = "Rows of history that a backfill reads per second."
    speed = Gauge("umbel_backfill_rows_per_second", report, labels, registry=registry)
    for each in switches(service.deployment, service.deployment.catalog.latest()):
        named = each.branch, str(each.serving), str(each.committed)
        share.labels(*named).set(each.share)
        done.labels(*named).set(each.done)
        total.labels(*named).set(each.total)
        if each.rows_per_second is not None:
            speed.labels(*named).set(each.rows_per_second)
        failing.labels(each.branch).set(bool(each.error))


def _worker(behind: Lags, registry: CollectorRegistry, service: Service) -> None:
    """Add the health of the worker; without the lag if that is damaged."""
    try:
        lag = Lag.total(behind().values())
    except (Damaged, OSError):
        lag = Lag.total(())
    worker = health(service.deployment, service.limits, lag)
    state = Gauge("umbel_worker_state", "1 for the state the worker is in.", ["state"], registry=registry)
    for each in STATES:
        state.labels(each).set(each == worker.state)
    report = "How often the worker was started again after it had ended by itself."
    Gauge("umbel_worker_restarts", report, registry=registry).set(worker.restarts)
    if worker.seen_at is not None:
        report = "The worker's last sign of life, in seconds since the epoch."
        Gauge("umbel_worker_seen_seconds", report, registry=registry).set(worker.seen_at)
    if worker.batch_at is not None:
        report = "When the worker finished its last batch, in seconds since the epoch."
        Gauge("umbel_worker_batch_seconds", report, registry=registry).set(worker.batch_at)
    report = "Why events are refused now: the number of reasons."
    Gauge("umbel_events_refused", report, registry=registry).set(len(service.backlog.reasons))


def _lag(behind: Lags, registry: CollectorRegistry, service: Service) -> None:
    """Add the lag of every endpoint."""
    labels = ["webhook", "endpoint"]
    rows = Gauge("umbel_lag_rows", "Rows accepted and not processed.", labels, registry=registry)
    size = Gauge("umbel_lag_bytes", "Bytes of rows accepted and not processed.", labels, registry=registry)
    report = "How long the oldest row has waited that is accepted and not processed."
    seconds = Gauge("umbel_lag_seconds", report, labels, registry=registry)
    for endpoint, lag in behind().items():
        rows.labels(*endpoint).set(lag.rows)
        size.labels(*endpoint).set(lag.bytes)
        seconds.labels(*endpoint).set(lag.seconds)


def _sources(registry: CollectorRegistry, service: Service) -> None:
    """Add the lag of every source, as the worker has recorded it."""
    rows = Gauge(
        "umbel_source_lag_rows",
        "Rows of a source beyond the last batch, if it can tell.",
        ["source"],
        registry=registry,
    )
    report = "Bytes of a source beyond the last batch, or of its server's log beyond what was read, if it can tell."
    size = Gauge("umbel_source_lag_bytes", report, ["source"], registry=registry)
    report = "How long the oldest change of a source has waited that is in no batch, if it can tell."
    seconds = Gauge("umbel_source_lag_seconds", report, ["source"], registry=registry)
    trouble = Gauge("umbel_source_trouble", "1 while a source cannot be read.", ["source"], registry=registry)
    report = "When the lag was recorded, in seconds since the epoch."
    at = Gauge("umbel_source_lag_recorded_seconds", report, ["source"], registry=registry)
    for each in source_lags(service.deployment.directory):
        for gauge, value in ((rows, each.lag.rows), (size, each.lag.bytes), (seconds, each.lag.seconds)):
            if value is not None:
                gauge.labels(each.source).set(value)
        trouble.labels(each.source).set(bool(each.trouble))
        at.labels(each.source).set(each.at)


def _sinks(registry: CollectorRegistry, service: Service) -> None:
    """Add the lag of every sink, as the worker has recorded it."""
    labels = ["dataset", "target"]
    report = "How long ago the destination of a sink had all changes there were, beyond its every."
    seconds = Gauge("umbel_sink_lag_seconds", report, labels, registry=registry)
    trouble = Gauge("umbel_sink_trouble", "1 while a sink cannot be written to.", labels, registry=registry)
    report = "When the lag was recorded, in seconds since the epoch."
    at = Gauge("umbel_sink_lag_recorded_seconds", report, labels, registry=registry)
    for each in sink_lags(service.deployment.directory):
        seconds.labels(each.dataset, each.target).set(each.seconds)
        trouble.labels(each.dataset, each.target).set(bool(each.trouble))
        at.labels(each.dataset, each.target).set(each.at)


def _dead_letters(registry: CollectorRegistry, counts: Counts) -> None:
    """Add the number of dead letters by the kind of reason."""
    report = "Rejected rows by dataset and kind of reason; a row with several counts once for each kind."
    rows = Gauge("umbel_dead_letters", report, ["dataset", "reason"], registry=registry)
    for (dataset, outcome), count in counts.items():
        if outcome.startswith(REASON):
            rows.labels(dataset, outcome.removeprefix(REASON)).set(count)


def _expectations(registry: CollectorRegistry, service: Service, counts: Counts) -> None:
    labels = ["branch", "dataset", "version", "number", "expectation", "columns"]
    report = "Rows an expectation has judged, by what came of them."
    rows = Gauge("umbel_expectation_rows", report, [*labels, "outcome"], registry=registry)
    report = "Whether as many rows pass an expectation as must."
    holds = Gauge("umbel_expectation_holds", report, labels, registry=registry)
    found = [(of, name) for of in service.branches() for name in of.definitions.datasets]
    for in_force, name in found:
        for number, each in enumerate(in_force.expectations(name, counts)):
            seen = each.watched
            where = in_force.branch, name, str(each.version), str(number)
            named = (*where, seen.expectation, ",".join(seen.columns))
            rows.labels(*named, "passed").set(seen.rows - seen.failed)
            rows.labels(*named, "failed").set(seen.failed)
            holds.labels(*named).set(seen.holds)


_OF_THE_WORKER = frozenset({"worker", "lag", "sources", "sinks", "logs"})
"""The parts that a server on another machine than the worker's cannot see."""
_PARTS: dict[str, Part] = {
    "datasets": _datasets,
    "sources": _sources,
    "sinks": _sinks,
    "logs": _logs,
    "backfills": _backfills,
    "state": _state,
    "disk": _disk,
    "batches": _batches,
}
"""What adds each part of the metrics but those that have the lag of webhooks."""
