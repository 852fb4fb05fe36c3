"""Offline queries as jobs: request, epoch of the current worker, and progress.

A job belongs to its last claimant: claiming raises its epoch, and no process with a lower epoch can record anything. The
process that runs a job sends beats; a job without a beat for `LEASE` seconds may be claimed by others, and continues at its
recorded
position.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from sqlalchemy import CursorResult, or_, select, update

from umbel.catalog import tables as t
from umbel.catalog.catalog import Catalog
from umbel.errors import Terminal, UnknownName

PENDING, RUNNING, COMPLETED, FAILED, CANCELLED = "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"
LEASE = 10.0
"""Seconds without a beat after which a job may be claimed by others."""
_FORGOTTEN = {"request": b"", "rows": None}
"""Values that are cleared when a job ends; they may include credentials."""
ATTEMPTS = 5
"""Number of starts at the same position after which a job counts as failed."""


@dataclass(frozen=True, slots=True)
class OfflineJob:
    """A job as recorded.

    Args:
        id: of the request.
        branch: the branch whose features are queried.
        request: the request, as submitted.
        bucket: bucket of the output.
        prefix: prefix of the output in the bucket.
        status: PENDING, RUNNING, COMPLETED, FAILED or CANCELLED.
        reason: why it failed, or was started again.
        rows: input that came with the request, None for files.
        epoch: of its last claimant.
        attempts: number of starts at this position.
        position: end position of the parts written; plain data.
        done: the processed fraction of the input.
        taken: rows read.
        failed: rows read without a result.
    """

    id: str
    branch: str
    request: bytes
    bucket: str
    prefix: str
    status: str = PENDING
    reason: str = ""
    rows: bytes | None = None
    epoch: int = 0
    attempts: int = 0
    position: Mapping[str, Any] = field(default_factory=dict)
    done: float = 0.0
    taken: int = 0
    failed: int = 0

    @property
    def is_open(self) -> bool:
        """Return True if the job has not ended."""
        return self.status in (PENDING, RUNNING)

    @property
    def report(self) -> dict[str, Any]:
        """The job as reported to clients."""
        failed = self.failed / self.taken if self.taken else 0.0
        report = {
            "request_id": self.id,
            "output_bucket": self.bucket,
            "output_prefix": self.prefix,
            "completion_rate": 1.0 if self.status == COMPLETED else self.done,
            "failure_rate": failed,
            "status": self.status,
        }
        return {**report, "reason": self.reason} if self.reason else report


class OfflineJobs:
    """The jobs of a catalog. Safe to use from many processes.

    Args:
        catalog: the catalog they are stored in.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._session = catalog.sessions

    def add(self, job: OfflineJob) -> None:
        """Store a new job."""
        with self._session.begin() as session:
            session.add(t.OfflineJobRow(**{name: getattr(job, name) for name in OfflineJob.__slots__}))

    def get(self, request: str) -> OfflineJob:
        """Return a job.

        Raises:
            UnknownName: there is none of this id.
        """
        with self._session() as session:
            row = session.get(t.OfflineJobRow, request)
            if row is None:
                raise UnknownName(
                    f"there is no offline query {request!r:.100}",
                    hint="POST /api/v1/query_offline with 'input' or 'output' answers its request_id",
                )
            return _job(row)

    def claim(self) -> OfflineJob | None:
        """Claim the oldest job without a live worker; None if there is none."""
        late = time.time() - LEASE
        waiting = or_(
            t.OfflineJobRow.status == PENDING, (t.OfflineJobRow.status == RUNNING) & (t.OfflineJobRow.beat < late)
        )
        with self._session() as session:
            row = session.scalars(select(t.OfflineJobRow).where(waiting).order_by(t.OfflineJobRow.at).limit(1)).first()
            job = None if row is None else _job(row)
        if job is None:
            return None
        attempts, now = job.attempts + 1, time.time()
        if attempts > ATTEMPTS:
            reason = job.reason or "the process that worked on it ended each time"
            self.end(job, FAILED, f"begun {ATTEMPTS} times without success: {reason}")
            return self.claim()
        values: dict[str, Any] = {"status": RUNNING, "epoch": job.epoch + 1, "attempts": attempts, "beat": now}
        if not self._set(job, **values):
            return self.claim()  # another process was faster
        return replace(job, status=RUNNING, epoch=job.epoch + 1, attempts=attempts)

    def beat(self, job: OfflineJob) -> bool:
        """Record a beat of a job; return True if the job should go on."""
        return self._set(job, beat=time.time())

    def record(self, job: OfflineJob, **values: Any) -> None:
        """Record the progress of a job.

        Raises:
            Terminal: it was cancelled, or claimed by another process.
        """
        if not self._set(job, attempts=0, reason="", beat=time.time(), **values):
            raise Terminal(f"offline query {job.id}: it was cancelled, or another process works on it")

    def end(self, job: OfflineJob, status: str, reason: str = "") -> bool:
        """Record the end of a job; return False if the caller no longer owned it."""
        return self._set(job, status=status, reason=reason, **_FORGOTTEN)

    def release(self, job: OfflineJob, reason: str = "", *, after: float = 0.0, counts: bool = True) -> None:
        """Release a job, so that it can be claimed again.

        Args:
            job: the job.
            reason: why.
            after: seconds before it can be claimed.
            counts: True if this counts as an attempt.
        """
        attempts = job.attempts if counts else job.attempts - 1
        self._set(job, beat=time.time() - LEASE + after, reason=reason, attempts=attempts)

    def cancel(self, request: str) -> OfflineJob:
        """Cancel a job, unless it has ended; return its current record."""
        self.get(request)
        is_open = t.OfflineJobRow.status.in_((PENDING, RUNNING)) & ~t.OfflineJobRow.is_sealed
        with self._session.begin() as session:
            session.execute(
                update(t.OfflineJobRow)
                .where(t.OfflineJobRow.id == request, is_open)
                .values(status=CANCELLED, **_FORGOTTEN)
            )
        return self.get(request)

    def _set(self, job: OfflineJob, **values: Any) -> bool:
        """Update a job if it is open and its epoch is still the caller's."""
        same = (t.OfflineJobRow.id == job.id, t.OfflineJobRow.epoch == job.epoch)
        is_open = t.OfflineJobRow.status.in_((PENDING, RUNNING))
        with self._session.begin() as session:
            changed = session.execute(update(t.OfflineJobRow).where(*same, is_open).values(**values))
            return bool(cast("CursorResult[Any]", changed).rowcount)


def _job(row: t.OfflineJobRow) -> OfflineJob:
    return OfflineJob(**{name: getattr(row, name) for name in OfflineJob.__slots__})
