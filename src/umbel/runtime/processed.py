"""The progress of processing, for clients that wait for a commit or logged rows."""

from __future__ import annotations

import sys
from typing import Any

from umbel.connectors.webhook import WebhookConnector
from umbel.graph.graph import MAIN
from umbel.log.segments import LogPosition
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.switching import branch_status


def processed(
    deployment: Deployment, branch: str = MAIN, webhook: str | None = None, endpoint: str | None = None
) -> dict[str, Any]:
    """Return the progress of processing.

    Args:
        deployment: the deployment.
        branch: the branch whose backfill is reported.
        webhook: of the endpoint to report, None for none.
        endpoint: its name.

    Returns:
        `revision`: the definitions that the last finished batch ran under; `serving`: the commit that serves the branch;
        `backfill`: the progress of that of the branch's last commit in words, None when that serves; `rows`: how many rows of the
        endpoint every dataset fed by it has had, None without an endpoint; `status`: that of the branch.
    """
    last = deployment.catalog.progress(JOB, sys.maxsize)
    status = branch_status(deployment, branch)
    backfill = None if status["state"] == "serving" else status["message"]
    found = {
        "revision": last.revision if last else 0,
        "serving": status["serving"],
        "backfill": backfill,
        "status": status,
    }
    positions = deployment.plans().read(last.state["plan"]).positions if last and "plan" in last.state else {}
    rows = [
        LogPosition.from_json(positions[each.key]).row if each.key in positions else 0
        for each in deployment.graph(deployment.catalog.latest()).sources()
        if _is_of(each.definition.connector, webhook, endpoint)
    ]
    return {**found, "rows": min(rows, default=0) if webhook is not None else None}


def _is_of(connector: Any, webhook: str | None, endpoint: str | None) -> bool:
    if not isinstance(connector, WebhookConnector):
        return False
    return (connector.source.name, connector.endpoint) == (webhook, endpoint)
