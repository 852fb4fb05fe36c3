"""Offline queries as jobs: request, status and finished parts.

One process at a time runs jobs: the one with the lock `offline` on umbel's folder. So nothing here says whose a job is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from sqlalchemy import CursorResult, select, update

from umbel.catalog import tables as t
from umbel.catalog.catalog import Catalog
from umbel.errors import Terminal, UnknownName

PENDING, RUNNING, COMPLETED, FAILED, CANCELLED = "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"
OPEN = (PENDING, RUNNING)
_FORGOTTEN = {"request": b"", "rows": None}
"""Values that are cleared when a job ends; they may include credentials."""
ATTEMPTS = 5
"""Number of starts without a further part after which a job counts as failed."""


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
        attempts: number of starts since the last part was finished.
        is_sealed: whether all parts are answered, so that it cannot be cancelled.
        parts: the finished parts, and the plan that they are of; plain data.
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
    attempts: int = 0
    is_sealed: bool = False
    parts: Mapping[str, Any] = field(default_factory=dict)
    done: float = 0.0
    taken: int = 0
    failed: int = 0

    @property
    def is_open(self) -> bool:
        """Return True if the job has not ended."""
        return self.status in OPEN

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

    def is_open(self, request: str) -> bool:
        """Return True if a job has not ended."""
        found = select(t.OfflineJobRow.status).where(t.OfflineJobRow.id == request)
        with self._session() as session:
            return session.scalar(found) in OPEN

    def has_open(self) -> bool:
        """Return True if a job has not ended."""
        found = select(t.OfflineJobRow.id).where(t.OfflineJobRow.status.in_(OPEN)).limit(1)
        with self._session() as session:
            return session.scalar(found) is not None

    def next_open(self) -> OfflineJob | None:
        """Return the oldest open job with the fewest attempts, if any."""
        found = select(t.OfflineJobRow).where(t.OfflineJobRow.status.in_(OPEN))
        with self._session() as session:
            row = session.scalars(found.order_by(t.OfflineJobRow.attempts, t.OfflineJobRow.at).limit(1)).first()
            return None if row is None else _job(row)

    def begin(self, job: OfflineJob) -> OfflineJob | None:
        """Record an attempt; return the job, None if there can be no attempt.

        It was cancelled, or has failed as often as it may. A job of an attempt before is pending again.
        """
        if job.attempts >= ATTEMPTS:
            reason = job.reason or "the process that worked on it ended each time"
            self.end(job, FAILED, f"begun {ATTEMPTS} times without success: {reason}")
            return None
        running = update(t.OfflineJobRow).where(t.OfflineJobRow.status == RUNNING)
        with self._session.begin() as session:
            session.execute(running.where(t.OfflineJobRow.id != job.id).values(status=PENDING))
        return self.get(job.id) if self._set(job, status=RUNNING, attempts=job.attempts + 1) else None

    def record(self, job: OfflineJob, *, has_moved: bool, **values: Any) -> None:
        """Record the progress of a job.

        Args:
            job: the job.
            has_moved: whether this attempt has finished parts; attempts then count from here.
            values: the new values.

        Raises:
            Terminal: it was cancelled.
        """
        if not self._set(job, **values, **({"attempts": 0, "reason": ""} if has_moved else {})):
            raise Terminal(f"offline query {job.id}: it was cancelled")

    def note(self, job: OfflineJob, reason: str) -> None:
        """Record why an attempt failed."""
        self._set(job, reason=reason)

    def interrupted(self, reason: str = "", *, counts: bool) -> None:
        """Record that the process that ran jobs has ended.

        Args:
            reason: why.
            counts: whether the attempt counts.
        """
        running = update(t.OfflineJobRow).where(t.OfflineJobRow.status == RUNNING)
        values = {"reason": reason} if counts else {"attempts": t.OfflineJobRow.attempts - 1}
        with self._session.begin() as session:
            session.execute(running.where(t.OfflineJobRow.attempts > 0).values(**values))

    def end(self, job: OfflineJob, status: str, reason: str = "") -> bool:
        """Record the end of a job; return False if it had ended before."""
        return self._set(job, status=status, reason=reason, **_FORGOTTEN)

    def cancel(self, request: str) -> OfflineJob:
        """Cancel a job, unless it has ended; return its current record."""
        self.get(request)
        is_open = t.OfflineJobRow.status.in_(OPEN) & ~t.OfflineJobRow.is_sealed
        with self._session.begin() as session:
            session.execute(
                update(t.OfflineJobRow)
                .where(t.OfflineJobRow.id == request, is_open)
                .values(status=CANCELLED, **_FORGOTTEN)
            )
        return self.get(request)

    def _set(self, job: OfflineJob, **values: Any) -> bool:
        """Update a job if it is open."""
        is_open = t.OfflineJobRow.status.in_(OPEN)
        with self._session.begin() as session:
            changed = session.execute(
                update(t.OfflineJobRow).where(t.OfflineJobRow.id == job.id, is_open).values(**values)
            )
            return bool(cast("CursorResult[Any]", changed).rowcount)


def _job(row: t.OfflineJobRow) -> OfflineJob:
    return OfflineJob(**{name: getattr(row, name) for name in OfflineJob.__slots__})
