"""The rules of the stamp: which write may follow which, and when one has to be taken back first."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.state.port import Fenced, StaleBatch, Stamp


@dataclass(frozen=True, slots=True)
class Progress:
    """The stamp of an owner as a store keeps it.

    Args:
        stamp: the last committed write.
        solid: the highest step of its batch that was written without undo, -1 when there is none.
    """

    stamp: Stamp
    solid: int = -1

    def admit(self, owner: str, stamp: Stamp) -> None:
        """Raise Fenced or StaleBatch when a write with `stamp` may not follow this one."""
        if self.stamp.epoch > stamp.epoch:
            raise Fenced(
                f"the state of operator {owner} belongs to epoch {self.stamp.epoch}, not to epoch {stamp.epoch}",
                hint="another worker has taken this job over; this one has to stop",
            )
        if self.stamp.batch > stamp.batch:
            raise StaleBatch(
                f"the state of operator {owner} is at batch {self.stamp.batch}; batch {stamp.batch} came before it",
                hint="the checkpoint and the store do not belong together",
            )
        if self.repeats(stamp) and stamp.step <= self.solid:
            raise StaleBatch(
                f"batch {stamp.batch} of operator {owner} was written without undo and cannot be applied again",
                hint="skip what Store.stamp says is done, or drop the operator's state and fill it again",
            )

    def repeats(self, stamp: Stamp) -> bool:
        """Whether a write with `stamp` runs a step of this batch again, so that it has to be taken back first."""
        return self.stamp.batch == stamp.batch and self.stamp.step >= stamp.step

    def follows(self, stamp: Stamp, undo: bool) -> Progress:
        """Return the progress once a write with `stamp` is committed."""
        kept = self.solid if self.stamp.batch == stamp.batch else -1
        return Progress(stamp, kept if undo else stamp.step)


def next_progress(before: Progress | None, stamp: Stamp, undo: bool) -> Progress:
    """Return an owner's progress after `stamp`, given the one before it."""
    if before is not None:
        return before.follows(stamp, undo)
    return Progress(stamp, -1 if undo else stamp.step)
