"""The health of the worker, from records written by it and its supervisor."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from umbel.processes.status import (
    FAILED,
    RUNNING,
    STARTING,
    STOPPED,
    Failures,
    Status,
    full_disk,
    read_failures,
    read_status,
    seconds_since_boot,
)
from umbel.runtime.deployment import Deployment
from umbel.runtime.freshness import Lag, lags
from umbel.runtime.limits import Limits

NEVER, LOOPING, STUCK = "never started", "looping", "stuck"
STATES = (NEVER, STARTING, RUNNING, STOPPED, LOOPING, STUCK)
SILENT = 20.0
"""Seconds without a sign of life after which a worker is not alive, or hangs as a whole."""
LOOP, LOOP_SECONDS = 3, 600.0
"""So many failures in so many seconds are a crash loop."""
STEADY = 60.0
"""Seconds a worker must run to be out of a crash loop, or twice as long as it ran before the last failures."""


@dataclass(frozen=True, slots=True)
class Health:
    """The health of the worker. Instants are seconds since the epoch, None for never.

    Args:
        state: one of `STATES`.
        reason: the reason if it is not running; the problem if there is one.
        process: its id.
        seen_at: its last heartbeat.
        batch: the last batch finished since it started.
        batch_at: the time that was finished.
        doing: the batch being processed; empty when it waits for input.
        restarts: the number of restarts after it ended by itself.
        last_failure: the last reason why it ended by itself.
        is_needed: whether there is anything to process: a dataset with a source.
    """

    state: str
    reason: str = ""
    process: int | None = None
    seen_at: float | None = None
    batch: int | None = None
    batch_at: float | None = None
    doing: str = ""
    restarts: int = 0
    last_failure: str = ""
    is_needed: bool = True

    @property
    def is_healthy(self) -> bool:
        """True if data is processed, or there is none to process."""
        return self.state == RUNNING or not self.is_needed

    @property
    def plain(self) -> dict[str, Any]:
        """The health as JSON-compatible data."""
        return {**asdict(self), "is_healthy": self.is_healthy}

    def __str__(self) -> str:
        last = "" if self.batch is None else f", last batch {self.batch} {_ago(self.batch_at)}"
        seen = "" if self.seen_at is None else f", last sign of life {_ago(self.seen_at)}"
        again = f", restarted {self.restarts} times" if self.restarts else ""
        return f"{self.state}{f' ({self.reason})' if self.reason else ''}{last}{seen}{again}"


def health(deployment: Deployment, limits: Limits, lag: Lag | None = None) -> Health:
    """Return the health of a deployment's worker.

    Args:
        deployment: the deployment.
        limits: how long it may go without progress.
        lag: of all endpoints together, if known.
    """
    status, failures = read_status(deployment.directory), read_failures(deployment.directory)
    lag = Lag.total(lags(deployment).values()) if lag is None else lag
    state, reason = judge(status, failures, lag, limits, time.time())
    if state in {STOPPED, LOOPING} and (full := full_disk(deployment.directory)):
        reason = f"{reason}; {full}" if reason else full
    is_needed = any(True for _ in deployment.graph(deployment.catalog.latest()).sources())
    last = failures.last[-1].reason if failures.last else ""
    if status is None:
        return Health(state, reason, restarts=failures.count, last_failure=last, is_needed=is_needed)
    done = status.batch, status.batch_at, status.doing
    return Health(state, reason, status.process, status.at, *done, failures.count, last, is_needed)


def judge(status: Status | None, failures: Failures, lag: Lag, limits: Limits, now: float) -> tuple[str, str]:
    """Return the state of a worker and its problem.

    Args:
        status: the last status it wrote.
        failures: its earlier failures.
        lag: of all endpoints together.
        limits: the time it may run without progress.
        now: seconds since the epoch.
    """
    loop = _loop(status, failures, now)
    if loop:
        return LOOPING, loop
    if status is None:
        return (STOPPED, failures.last[-1].reason) if failures.last else (NEVER, "")
    if status.state in {STOPPED, FAILED}:
        return STOPPED, status.reason
    if not _lives(status):
        return STOPPED, f"process {status.process} has ended without saying why: killed, perhaps"
    if now - status.at > SILENT:
        return STUCK, f"process {status.process} has given no sign of life for {now - status.at:.0f} s"
    still, idle = now - status.progress_at, not status.doing
    if limits.stuck_after and still > limits.stuck_after:
        if status.state == STARTING:
            return STUCK, f"it has been starting for {still:.0f} s"
        if not idle:
            return STUCK, f"{status.doing} has made no progress for {still:.0f} s"
        if lag.seconds > limits.stuck_after:
            return STUCK, f"events have waited for {lag.seconds:.0f} s, and no batch was begun"
    return status.state, ""


def _loop(status: Status | None, failures: Failures, now: float) -> str:
    recent = [each for each in failures.last if 0.0 <= now - each.at <= LOOP_SECONDS]  # the clock may be set back
    if len(recent) < LOOP:
        return ""
    steady = max(STEADY, 2 * max(each.ran_for for each in recent))
    if (
        status is not None
        and status.state == RUNNING
        and status.begun_at > recent[-1].at
        and now - status.begun_at > steady
    ):
        return ""
    return f"it has ended {len(recent)} times in {LOOP_SECONDS / 60:.0f} minutes, the last time: {recent[-1].reason}"


def _lives(status: Status) -> bool:
    """Return whether the process that wrote a status is alive.

    It is judged from this machine alone.
    """
    if status.host != platform.node():
        return True
    try:
        process = psutil.Process(status.process)
        return process.status() != psutil.STATUS_ZOMBIE and _is_same(process, status)
    except psutil.Error:
        return False


def _is_same(process: psutil.Process, status: Status) -> bool:
    """Return whether a process wrote a status, and is not another one with its number.

    On Linux the start of a process moves with the clock.
    """
    if process.create_time() <= status.begun_at + 1.0:
        return True
    return status.since_boot is not None and abs(seconds_since_boot(process) - status.since_boot) < 1.0


def _ago(at: float | None) -> str:
    return "" if at is None else f"{max(0.0, time.time() - at):,.0f} s ago"


def as_plain(lags: Mapping[tuple[str, str], Lag]) -> dict[str, Any]:
    """Return lags as plain data: the total, and of each endpoint."""
    endpoints = {"/".join(endpoint): asdict(lag) for endpoint, lag in sorted(lags.items())}
    return {**asdict(Lag.total(lags.values())), "endpoints": endpoints}
