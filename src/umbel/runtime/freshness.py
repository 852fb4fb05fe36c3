"""How far processing is behind what was accepted."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from umbel.connectors.webhook import WebhookConnector
from umbel.log.reading import IngestReader
from umbel.log.segments import LogPosition
from umbel.runtime.deployment import JOB, Deployment


def behind(deployment: Deployment) -> float:
    """Return for how many seconds the oldest event has waited that was accepted and is not processed; 0 for none."""
    waiting = [time.time() - since for since in _waiting(deployment)]
    return max([0.0, *waiting])


def _waiting(deployment: Deployment) -> Iterator[float]:
    """Yield for each endpoint with unprocessed events when the first of them came."""
    positions = _positions(deployment)
    for each in deployment.graph(deployment.catalog.latest()).sources():
        connector = each.definition.connector
        if isinstance(connector, WebhookConnector):
            yield from _first(deployment, connector, positions.get(each.key))


def _positions(deployment: Deployment) -> Mapping[str, Any]:
    last = deployment.catalog.progress(JOB, sys.maxsize)
    return deployment.plans().read(last.state["plan"]).positions if last and "plan" in last.state else {}


def _first(deployment: Deployment, connector: WebhookConnector, position: Any) -> Iterator[float]:
    reader = IngestReader(deployment.directory, connector.source.name, connector.endpoint)
    start = reader.start() if position is None else LogPosition.from_json(position)
    ranges, _ = reader.plan(start, rows=1)
    for part in ranges[:1]:
        for record in reader.open(part):
            yield record.entry.received_at / 1e6
            return
