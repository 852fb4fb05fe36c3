"""The driver of offline queries: runs open jobs one after the other, part by part."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from umbel.catalog.engine import AWAY
from umbel.catalog.offline_jobs import COMPLETED, FAILED, OfflineJob, OfflineJobs
from umbel.errors import InvalidValue, Terminal
from umbel.offline.answering import PROBED
from umbel.offline.answers import JobAnswers, answer_part, answers_of, described, may_go_away, succeed
from umbel.offline.parts import InputPart, PartReport, decoded, encoded, plan_of
from umbel.runtime.deployment import Deployment

LOCK = "offline"
"""The name of the lock on umbel's folder; the process that has it runs jobs."""
PAUSE = 2.0
"""Seconds before the second attempt; they double with each."""
EVERY = 1.0
"""Seconds between two records of progress, and between two looks whether a job was cancelled."""

log = logging.getLogger("umbel.offline")


class RunsParts(Protocol):
    """Answers parts of a job, in some place or many."""

    def __call__(self, job: OfflineJob, parts: Sequence[InputPart], progress: Progress) -> None:
        """Answer all parts, and report each to `progress`.

        In between it looks whether the job was cancelled.
        """


@dataclass
class Progress:
    """The progress of a job.

    Args:
        jobs: where it is recorded.
        job: the job.
        parts: all parts of it.
        answered: the reports of parts answered by earlier attempts.
    """

    jobs: OfflineJobs
    job: OfflineJob
    parts: Sequence[InputPart]
    answered: dict[int, PartReport]
    _looked_at: float = field(default=0.0, init=False)

    @property
    def left(self) -> list[InputPart]:
        """The parts that are to be answered."""
        return [each for each in self.parts if each.number not in self.answered]

    @property
    def taken(self) -> int:
        """Rows read."""
        return sum(each.taken for each in self.answered.values())

    @property
    def failed(self) -> int:
        """Rows read without an answer."""
        return sum(each.failed for each in self.answered.values())

    def add(self, report: PartReport) -> None:
        """Add a part.

        Raises:
            Terminal: the query fails, or was cancelled.
        """
        if report.error:
            raise Terminal(report.error)
        self.answered[report.number] = report
        self.look()

    def look(self) -> None:
        """Record the progress, if that was not done of late.

        Raises:
            Terminal: the job was cancelled.
        """
        if time.monotonic() >= self._looked_at + EVERY:
            self._looked_at = time.monotonic()
            self.record()

    def record(self, *, is_sealed: bool = False) -> None:
        """Record the progress.

        Raises:
            Terminal: the job was cancelled.
        """
        answered = {each.number: each.weight for each in self.parts if each.number in self.answered}
        values = {
            "parts": {"plan": plan_of(self.parts), "answered": encoded(self.answered.values())},
            "done": sum(answered.values()) / sum(each.weight for each in self.parts),
            "taken": self.taken,
            "failed": self.failed,
        }
        has_moved = len(answered) > len(self.job.parts.get("answered", ()))
        self.jobs.record(self.job, has_moved=has_moved, is_sealed=is_sealed, **values)


class OfflineDriver:
    """Runs the open jobs of a deployment; the process must have the lock.

    Args:
        deployment: the deployment to query.
        run_parts: answers the parts of a job.
        stop: set to begin no further job.
    """

    def __init__(self, deployment: Deployment, run_parts: RunsParts, stop: threading.Event | None = None) -> None:
        self._deployment, self._run_parts = deployment, run_parts
        self._jobs, self._stop = OfflineJobs(deployment.catalog), stop or threading.Event()

    def run_open(self) -> None:
        """Run open jobs until there is none."""
        while not self._stop.is_set() and (job := self._next()) is not None:
            self.run(job)

    def _next(self) -> OfflineJob | None:
        """Return the job to run, if any; new ones pass those that failed."""
        begun = time.monotonic()
        while (job := self._jobs.next_open()) is not None and job.attempts:
            left = begun + PAUSE * 2 ** (job.attempts - 1) - time.monotonic()
            if left <= 0:
                return job
            if self._stop.wait(min(left, EVERY)):
                return None
        return job

    def run(self, job: OfflineJob) -> None:
        """Run a job; any error is recorded with it."""
        begun = self._jobs.begin(job)
        if begun is None:
            return
        try:
            self._finish(begun)
        except Exception as error:  # of user code, storage or Spark: each is recorded, and the next query is run
            if may_go_away(error):
                log.warning("offline query %s: %s", job.id, error)
                self._jobs.note(job, described(error))
            else:
                log.exception("offline query %s", job.id)
                self._jobs.end(job, FAILED, described(error))
        finally:
            answers_of.cache_clear()

    def _finish(self, job: OfflineJob) -> None:
        """Answer the parts that are left, and complete the job."""
        if not job.is_sealed:
            self._answer(job)
        succeed(self._deployment, self._jobs.get(job.id))
        self._jobs.end(job, COMPLETED)

    def _answer(self, job: OfflineJob) -> None:
        """Answer the parts that are left, and seal the job."""
        answers = answers_of(self._deployment, job.id)
        progress = self._progress(job, answers)
        self._run_parts(job, progress.left, progress)
        _check_answered(progress)
        progress.record(is_sealed=True)  # from here on it cannot be cancelled: no marker is beside a cancelled job

    def _progress(self, job: OfflineJob, answers: JobAnswers) -> Progress:
        parts = answers.parts()
        is_same = job.parts.get("plan") == plan_of(parts)
        answered = decoded(job.parts["answered"]) if is_same else []
        if not answered:
            answers.clear()
        return Progress(self._jobs, job, parts, {each.number: each for each in answered})


def _check_answered(progress: Progress) -> None:
    """Refuse to complete a job without answers.

    Of few rows all may be wrong; of many the query is.
    """
    if not progress.taken:
        raise InvalidValue("the input is empty: no file has rows", hint="name files that have some")
    if progress.failed == progress.taken >= PROBED:
        raise InvalidValue(
            f"none of the {progress.taken} rows has an answer", hint="the files in _errors/ have the reason of each"
        )


def in_this_process(deployment: Deployment, on_cancelled: Callable[[], None] | None = None) -> RunsParts:
    """Return what answers parts in this process, one after the other.

    Args:
        deployment: the deployment to query.
        on_cancelled: called by another thread when the job is cancelled while a part is answered.
    """

    def run(job: OfflineJob, parts: Sequence[InputPart], progress: Progress) -> None:
        with _watched(OfflineJobs(deployment.catalog), job, on_cancelled):
            for part in parts:
                progress.add(answer_part(deployment, job.id, part))

    return run


@contextmanager
def _watched(jobs: OfflineJobs, job: OfflineJob, on_cancelled: Callable[[], None] | None) -> Iterator[None]:
    """Look during a block whether a job is cancelled."""
    done = threading.Event()

    def watch(on_cancelled: Callable[[], None]) -> None:
        while not done.wait(EVERY):
            with suppress(*AWAY):
                if not jobs.is_open(job.id):
                    on_cancelled()

    if on_cancelled is not None:
        threading.Thread(target=watch, args=(on_cancelled,), name="watch", daemon=True).start()
    try:
        yield
    finally:
        done.set()
