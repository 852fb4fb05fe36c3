"""The progress of a backfill, recorded in the catalog after each step for restarts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from umbel.runtime.history_slices import PART_ROWS, HistoryPosition, HistorySizes

BACKFILL = "backfill"
"""The name under which it is noted."""
BEFORE_HISTORY = -(1 << 62)
"""A batch number below all others."""
LONGEST_WAIT = 300.0
"""Seconds until a step that failed is tried again, at the most."""
_CUT = 1
"""The rule by which batches are cut into parts, increased when that changes: 1 cuts keyless rows by ranges of timestamps."""


@dataclass(frozen=True, slots=True)
class BackfillState:
    """The progress of a backfill between two steps.

    Args:
        state_ids: the state ids of the operators being computed; none when there is no backfill.
        step: the number of completed steps.
        reached: the last batch of history read as a whole, None for none.
        part: the number of parts read of the batch after it.
        planned: what `reached` will be after the next step if it was begun: a step that is run again reads the same rows.
        planned_part: what `part` will be.
        in_driver: whether the step that was begun runs in the driver.
        done: rows of history read.
        total: rows of history in all.
        seen: the largest event time each timed operator has read, in ISO form, by its state id.
        moved: how far back operators have moved rows, by their state ids.
        failures: the number of failures since the last completed step.
        error: the last failure.
        not_before: the time of the next attempt, in seconds since the epoch.
        seconds: the time its completed steps have taken, with the batches between them.
        began: the batch before which the operators' change logs were deleted, None for unknown.
        deleted: the names of those change logs. Retained after the backfill: that batch may be run again.
        cut: the rule by which batches were cut into parts.
        limit: about how many rows the next step may read, 0 for unknown.
        part_rows: about how many rows a part of a batch has.
        divisor: into how many parts are divided, since steps have ended the worker.
        most: about how many rows any step may read, since a larger one has ended the worker; 0 without a bound.
        epoch: the worker that runs the step that was begun, None for none.
        ended: how often that step has ended a worker.
        instants: up to which results that wait for the watermark are emitted in steps of their own, in µs; None before all
            history was read.
        clocks: those of the step that emits them if it was begun, by state id: a step that is run again emits the same.
        passed: the instant up to which each operator has emitted them, in ISO form, by its state id.
    """

    state_ids: tuple[str, ...] = ()
    step: int = 0
    reached: int | None = None
    part: int = 0
    planned: int | None = None
    planned_part: int = 0
    in_driver: bool = False
    done: int = 0
    total: int = 0
    seen: Mapping[str, str] = field(default_factory=dict)
    moved: Mapping[str, Sequence[int]] = field(default_factory=dict)
    failures: int = 0
    error: str = ""
    not_before: float = 0.0
    seconds: float = 0.0
    began: int | None = None
    deleted: tuple[str, ...] = ()
    cut: int = _CUT
    limit: int = 0
    part_rows: int = PART_ROWS
    divisor: int = 1
    most: int = 0
    epoch: int | None = None
    ended: int = 0
    instants: Sequence[int] | None = None
    clocks: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    passed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, noted: Mapping[str, Any] | None) -> BackfillState:
        """Restore a state from its plain form."""
        if not noted:
            return cls()
        names = {name: tuple(noted.get(name, ())) for name in ("state_ids", "deleted")}
        return cls(**{"cut": 0, **noted, **names})

    @property
    def is_cut_otherwise(self) -> bool:
        """True if an older version has read some parts of a batch.

        They are others than those of this version.
        """
        return self.cut != _CUT and bool(self.part or self.planned_part)

    @property
    def position(self) -> HistoryPosition:
        """The position in history after the last completed step."""
        return HistoryPosition(BEFORE_HISTORY if self.reached is None else self.reached, self.part)

    @property
    def end(self) -> HistoryPosition:
        """The position after the step that was begun."""
        return HistoryPosition(BEFORE_HISTORY if self.planned is None else self.planned, self.planned_part)

    def sizes(self, rows: Mapping[int, int]) -> HistorySizes:
        """Return the sizes of batches of history, as this backfill cuts them."""
        return HistorySizes(rows, self.part_rows, self.divisor)

    def tried(self, epoch: int, excused: int | None) -> BackfillState:
        """Return the state with a worker that runs the step.

        Args:
            epoch: of the worker.
            excused: the epoch of the last worker that did not end by itself.
        """
        has_ended = self.epoch not in (None, epoch, excused)
        return replace(self, epoch=epoch, ended=self.ended + has_ended)

    def failed(self, error: str, at: float, *, has_ended: bool) -> BackfillState:
        """Return the state after a step that failed.

        Args:
            error: why.
            at: the time, in seconds since the epoch.
            has_ended: whether it has ended a process.
        """
        wait = min(LONGEST_WAIT, 2.0**self.failures)
        return replace(
            self,
            failures=self.failures + 1,
            error=error,
            not_before=at + wait,
            epoch=None,
            ended=self.ended + has_ended,
        )

    def divided(self, rows: Mapping[int, int], limit: int, most: int) -> BackfillState:
        """Return the state without its begun step, with smaller parts.

        Args:
            rows: the rows of each batch that was not read as a whole.
            limit: about how many rows the next step may read.
            most: about how many any step may read.
        """
        before = self.sizes(rows)
        history = before.divided(limit)
        begin = history.at(self.position, before)
        return replace(
            self,
            part=begin.part,
            planned=None,
            planned_part=0,
            divisor=history.divisor,
            limit=limit,
            most=most,
            ended=0,
        )

    def begun(self, end: HistoryPosition, total: int, *, in_driver: bool) -> BackfillState:
        """Return the state with a step that is begun.

        Args:
            end: the position after the step.
            total: rows of history in all.
            in_driver: whether the step runs in the driver.
        """
        planned = None if end.batch == BEFORE_HISTORY else end.batch
        return replace(self, planned=planned, planned_part=end.part, total=total, in_driver=in_driver, cut=_CUT)

    def completed(
        self,
        rows: int,
        seen: Mapping[str, str],
        moved: Mapping[str, Sequence[int]],
        seconds: float,
        limit: int,
        most: int = 0,
    ) -> BackfillState:
        """Return the state after the step that was begun.

        Args:
            rows: rows of history that it read.
            seen: the largest event time each timed operator has read, in ISO form.
            moved: how far back operators have moved rows.
            seconds: how long it took.
            limit: about how many rows the next one may read.
            most: about how many any other one may read, 0 without a bound.
        """
        return BackfillState(
            self.state_ids,
            self.step + 1,
            self.planned,
            self.planned_part,
            done=self.done + rows,
            total=self.total,
            seen=seen,
            moved=moved,
            began=self.began,
            deleted=self.deleted,
            seconds=self.seconds + seconds,
            limit=limit,
            part_rows=self.part_rows,
            divisor=self.divisor,
            most=most,
            instants=self.instants,
            passed=self.passed,
        )

    def emitted(
        self,
        seen: Mapping[str, str],
        moved: Mapping[str, Sequence[int]],
        passed: Mapping[str, str],
        seconds: float,
    ) -> BackfillState:
        """Return the state after a step that emitted results that waited.

        Args:
            seen: the largest event time each timed operator has read, in ISO form.
            moved: how far back operators have moved rows.
            passed: the instant up to which operators have emitted them, in ISO form.
            seconds: how long it took.
        """
        return replace(
            self,
            step=self.step + 1,
            seen=seen,
            moved=moved,
            passed={**self.passed, **passed},
            seconds=self.seconds + seconds,
            instants=(self.instants or ())[1:],
            clocks={},
            failures=0,
            error="",
            epoch=None,
            ended=0,
        )

    @property
    def is_begun_in_driver(self) -> bool:
        """True if a step was begun that runs in the driver."""
        return bool(self.clocks) or (self.in_driver and self.end > self.position)

    @property
    def plain(self) -> dict[str, Any]:
        """The state as JSON-compatible data."""
        return asdict(self)

    @property
    def share(self) -> float:
        """The share of the history that has been read."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    @property
    def rows_per_second(self) -> float | None:
        """The rate of the completed steps, None before the first one."""
        return self.done / self.seconds if self.done and self.seconds > 0 else None

    def finished(self) -> BackfillState:
        """Return the state after the backfill."""
        return BackfillState(began=self.began, deleted=self.deleted)

    def deleted_before(self, batch: int) -> tuple[str, ...]:
        """Return the change logs that were deleted since the batch before this one was finished."""
        return self.deleted if self.began == batch else ()

    def is_due(self, now: float) -> bool:
        """Return whether the next step may begin.

        It may if it is later than it can be: the clock was set back.
        """
        return not now < self.not_before <= now + LONGEST_WAIT
