"""Offline queries that run as jobs: what is asked, who works on it, how far it is.

A job belongs to whoever claimed it last: claiming raises its epoch, and nobody with a lower one can record anything. Who
works on a job beats; a job that has not beaten for a while may be claimed by others, and goes on where it was recorded.
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
_FORGOTTEN = {"asked": b"", "rows": None}
"""What a job that has ended need not keep; among it may be credentials."""
ATTEMPTS = 5
"""How often a job is begun at the same place before it counts as failed."""


@dataclass(frozen=True, slots=True)
class OfflineJob:
    """A job as recorded.

    Args:
        id: of the request.
        branch: whose features are asked.
        asked: what is asked, as the one who submitted it wrote it.
        bucket: where the answer goes.
        prefix: where in the bucket.
        status: PENDING, RUNNING, COMPLETED, FAILED or CANCELLED.
        reason: why it failed, or was begun again.
        rows: input that came with the request, None for files.
        epoch: of whoever works on it.
        attempts: how often it was begun at this position.
        position: how far the parts written reach; plain data.
        done: the share of the input that is done with.
        taken: rows read.
        failed: those of them without an answer.
    """

    id: str
    branch: str
    asked: bytes
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
        """Whether it has not ended."""
        return self.status in (PENDING, RUNNING)

    @property
    def told(self) -> dict[str, Any]:
        """The job as those who ask for it see it."""
        failed = self.failed / self.taken if self.taken else 0.0
        told = {
            "request_id": self.id,
            "output_bucket": self.bucket,
            "output_prefix": self.prefix,
            "completion_rate": 1.0 if self.status == COMPLETED else self.done,
            "failure_rate": failed,
            "status": self.status,
        }
        return {**told, "reason": self.reason} if self.reason else told


class OfflineJobs:
    """The jobs of a catalog. Safe to use from many processes.

    Args:
        catalog: where they are kept.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._session = catalog.sessions

    def add(self, job: OfflineJob) -> None:
        """Keep a new job."""
        with self._session.begin() as session:
            session.add(t.OfflineJob(**{name: getattr(job, name) for name in OfflineJob.__slots__}))

    def get(self, request: str) -> OfflineJob:
        """Return a job.

        Raises:
            UnknownName: there is none of this id.
        """
        with self._session() as session:
            row = session.get(t.OfflineJob, request)
            if row is None:
                raise UnknownName(
                    f"there is no offline query {request!r:.100}",
                    hint="POST /api/v1/query_offline with 'input' or 'output' answers its request_id",
                )
            return _job(row)

    def claim(self) -> OfflineJob | None:
        """Become the one who works on the oldest job that nobody works on; None when there is none."""
        late = time.time() - LEASE
        waiting = or_(t.OfflineJob.status == PENDING, (t.OfflineJob.status == RUNNING) & (t.OfflineJob.beat < late))
        with self._session() as session:
            row = session.scalars(select(t.OfflineJob).where(waiting).order_by(t.OfflineJob.at).limit(1)).first()
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
            return self.claim()  # somebody else was faster
        return replace(job, status=RUNNING, epoch=job.epoch + 1, attempts=attempts)

    def beat(self, job: OfflineJob) -> bool:
        """Say that a job is worked on; return whether it still should be."""
        return self._set(job, beat=time.time())

    def record(self, job: OfflineJob, **values: Any) -> None:
        """Note how far a job is.

        Raises:
            Terminal: it was cancelled, or claimed by somebody else.
        """
        if not self._set(job, attempts=0, reason="", beat=time.time(), **values):
            raise Terminal(f"offline query {job.id}: it was cancelled, or another process works on it")

    def end(self, job: OfflineJob, status: str, reason: str = "") -> bool:
        """Note that a job has ended; return whether it was the caller's to end."""
        return self._set(job, status=status, reason=reason, **_FORGOTTEN)

    def release(self, job: OfflineJob, reason: str = "", *, after: float = 0.0, counts: bool = True) -> None:
        """Let a job be claimed again.

        Args:
            job: which.
            reason: why.
            after: seconds that shall pass before.
            counts: whether this was an attempt.
        """
        attempts = job.attempts if counts else job.attempts - 1
        self._set(job, beat=time.time() - LEASE + after, reason=reason, attempts=attempts)

    def cancel(self, request: str) -> OfflineJob:
        """Stop a job, unless it has ended; return how it is then."""
        self.get(request)
        is_open = t.OfflineJob.status.in_((PENDING, RUNNING)) & ~t.OfflineJob.is_sealed
        with self._session.begin() as session:
            session.execute(
                update(t.OfflineJob).where(t.OfflineJob.id == request, is_open).values(status=CANCELLED, **_FORGOTTEN)
            )
        return self.get(request)

    def _set(self, job: OfflineJob, **values: Any) -> bool:
        """Change a job if it is still what the caller takes it for."""
        same = (t.OfflineJob.id == job.id, t.OfflineJob.epoch == job.epoch)
        is_open = t.OfflineJob.status.in_((PENDING, RUNNING))
        with self._session.begin() as session:
            changed = session.execute(update(t.OfflineJob).where(*same, is_open).values(**values))
            return bool(cast("CursorResult[Any]", changed).rowcount)


def _job(row: t.OfflineJob) -> OfflineJob:
    return OfflineJob(**{name: getattr(row, name) for name in OfflineJob.__slots__})
