"""The metrics of sinks, as the worker has recorded their lags."""

from __future__ import annotations

from tests.unit.serving.conftest import Served
from umbel.runtime.sink_lags import SinkLag, record_sinks


def test_metrics_have_the_lags_of_sinks(flights: Served) -> None:
    slow = SinkLag("Order", "Kafka 'k', topic 't'", 12.0, "no broker", 7.0)
    record_sinks(flights.deployment.directory, [slow])
    text = flights.http.get("/api/v1/metrics").text
    labels = "{dataset=\"Order\",target=\"Kafka 'k', topic 't'\"}"
    for line in ("umbel_sink_lag_seconds{} 12.0", "umbel_sink_trouble{} 1.0", "umbel_sink_lag_recorded_seconds{} 7.0"):
        assert line.replace("{}", labels) in text
