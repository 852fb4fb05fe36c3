"""Where a collector forwards events."""

from __future__ import annotations

import pytest

from umbel.collector.settings import KafkaTarget
from umbel.errors import InvalidValue


@pytest.mark.parametrize(
    "url",
    [
        "kafka://a:9092/.",
        "kafka://a:9092/..",
        "kafka://a:0/events",
        "kafka://a:65536/events",
        "kafka://a:99999/events",
        "kafka://a:9092,b/events",
        "kafka://a:9092,/events",
        "kafka://a:9092/",
        "kafka://a:9092/a/b",
        "kafka://a:9092/events?x=1",
    ],
)
def test_a_target_that_no_cluster_can_have_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match="must be kafka://host:port/topic"):
        KafkaTarget.parse(url)


@pytest.mark.parametrize("servers", ["a:1", "[::1]:9092", "a.b:65535,127.0.0.1:9092"])
def test_servers_of_a_target(servers: str) -> None:
    assert KafkaTarget.parse(f"kafka://{servers}/..events") == KafkaTarget(servers, "..events")
