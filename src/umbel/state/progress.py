"""Ordering rules of stamps: admissible writes, and repeated writes to roll back first."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.state.port import Fenced, StaleBatch, Stamp


@dataclass(frozen=True, slots=True)
class StampProgress:
    """The stored stamp of a state id.

    Args:
        stamp: the last committed write.
        solid: the highest step of its batch that was written without undo, -1 if there is none.
    """

    stamp: Stamp
    solid: int = -1

    def admit(self, state_id: str, stamp: Stamp) -> None:
        """Raise Fenced or StaleBatch if a write with `stamp` may not follow this one."""
        if self.stamp.epoch > stamp.epoch:
            raise Fenced(
                f"the state of operator {state_id} belongs to epoch {self.stamp.epoch}, not to epoch {stamp.epoch}",
                hint="another worker has taken this job over; this one has to stop",
            )
        if self.stamp.batch > stamp.batch:
            raise StaleBatch(
                f"the state of operator {state_id} is at batch {self.stamp.batch}; batch {stamp.batch} came before it",
                hint="the checkpoint and the store do not belong together",
            )
        if self.repeats(stamp) and stamp.step <= self.solid:
            raise StaleBatch(
                f"batch {stamp.batch} of operator {state_id} was written without undo and cannot be applied again",
                hint="skip what Store.stamp says is done, or drop the operator's state and fill it again",
            )

    def repeats(self, stamp: Stamp) -> bool:
        """Return True if `stamp` repeats a step of this batch.

        The repeated step has to be rolled back first.
        """
        return self.stamp.batch == stamp.batch and self.stamp.step >= stamp.step

    def follows(self, stamp: Stamp, undo: bool) -> StampProgress:
        """Return the progress after a commit with `stamp`."""
        retained = self.solid if self.stamp.batch == stamp.batch else -1
        return StampProgress(stamp, retained if undo else stamp.step)


def next_progress(before: StampProgress | None, stamp: Stamp, undo: bool) -> StampProgress:
    """Return a state id's progress after `stamp`, from its earlier progress."""
    if before is not None:
        return before.follows(stamp, undo)
    return StampProgress(stamp, -1 if undo else stamp.step)
