"""Back-pressure: refuses events while the backlog is too large or the disk nearly full.

A thread measures the backlog once a second. Accepting an event costs one dictionary lookup, so somewhat more than the limit
may be accepted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from umbel.errors import Overloaded
from umbel.processes.status import read_status
from umbel.runtime.deployment import Deployment
from umbel.runtime.freshness import Endpoint, Lag, backlogs
from umbel.runtime.limits import Limits, disk_trouble
from umbel.serving.threads import ThreadPool

EVERY = 1.0
"""Seconds between two looks at how much waits."""

log = logging.getLogger("umbel.serve")


class Backlog:
    """Tracks the endpoints that refuse events because of their backlog.

    Args:
        deployment: the deployment whose ingest logs are measured.
        limits: the largest backlog in bytes and seconds, and the disk reserve.
    """

    def __init__(self, deployment: Deployment, limits: Limits) -> None:
        self._deployment, self._limits = deployment, limits
        self._threads = ThreadPool("backlog", 1)
        self._refused: Mapping[Endpoint, str] = {}
        self._full = self._remedy = ""

    def check(self, webhook: str, endpoint: str) -> None:
        """Refuse events while too many wait.

        Raises:
            Overloaded: the reason.
        """
        if self._full:
            raise Overloaded(self._full, hint=self._remedy)
        reason = self._refused.get((webhook, endpoint))
        if reason is not None:
            raise Overloaded(reason, hint="send it again later; the worker's state is in /readyz?deep and umbel doctor")

    async def follow(self) -> None:
        """Measure the backlog once a second, until cancelled."""
        while True:
            try:
                await self._threads.do(self.look)
            except Exception as error:  # noqa: BLE001  the last measurement stays in force
                log.error("cannot tell how many events wait: %s", error)
            await asyncio.sleep(EVERY)

    def look(self) -> None:
        """Measure the backlog of each endpoint and the free disk space."""
        self._full, self._remedy = disk_trouble(self._deployment.directory, self._limits.disk_reserve)
        found = backlogs(self._deployment)
        # Without any worker so far, events are not expected to be processed soon: only bytes count.
        is_old = self._limits.backlog_age if read_status(self._deployment.directory) else 0.0
        reasons = {each: _reason(each, lag, self._limits.backlog_bytes, is_old) for each, lag in found.items()}
        self._refused = {each: reason for each, reason in reasons.items() if reason}

    @property
    def reasons(self) -> list[str]:
        """The reasons for which events are refused now; empty if they are accepted."""
        return [*filter(None, [self._full]), *self._refused.values()]

    def close(self) -> None:
        """Stop the thread."""
        self._threads.close()


def _reason(endpoint: Endpoint, lag: Lag, bytes: int, seconds: float) -> str:
    name = "/".join(endpoint)
    if bytes and lag.bytes >= bytes:
        return f"webhook endpoint '{name}': {lag.bytes:,} bytes of events wait to be processed, the limit is {bytes:,}"
    if seconds and lag.seconds >= seconds:
        waited = f"{lag.seconds:,.0f} s"
        return (
            f"webhook endpoint '{name}': events have waited for {waited} to be processed, the limit is {seconds:,.0f} s"
        )
    return ""
