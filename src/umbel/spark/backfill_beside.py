"""Steps of a backfill beside the batches of the live job."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Thread
from time import monotonic

from umbel.errors import text_of
from umbel.runtime.backfill_state import BACKFILL, BackfillState
from umbel.spark.backfill_step import BackfillStep


class StepBeside:
    """A step that runs in a thread, beside the batches of the live job.

    Args:
        step: the step, of Spark tasks.
        state: how far the backfill is.
        sizes: rows of history of each batch that was not read as a whole yet.
        since: the start of its time, in monotonic seconds.
        waiting: the state ids of all operators that wait.
    """

    def __init__(
        self, step: BackfillStep, state: BackfillState, sizes: Mapping[int, int], since: float, waiting: frozenset[str]
    ) -> None:
        self.revision, self.waiting, self.number, self.ended = step.revision, waiting, state.step, since
        self.logs = {node.state_id: node.log for node in step.graph.nodes if node.state_id in step.state_ids}
        self._failure: Exception | None = None
        self._thread = Thread(target=self._run, args=(step, state, sizes, since), name="backfill", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """True until it has ended."""
        return self._thread.is_alive()

    def belongs_to(self, revision: int, waiting: frozenset[str]) -> bool:
        """Return whether it was begun under a revision, with these operators waiting."""
        return (self.revision, self.waiting) == (revision, waiting)

    def wait(self, timeout: float | None = None) -> Exception | None:
        """Wait until it has ended; return why it failed, if it did.

        Args:
            timeout: seconds to wait at most.
        """
        self._thread.join(timeout)
        return self._failure

    def _run(self, step: BackfillStep, state: BackfillState, sizes: Mapping[int, int], since: float) -> None:
        try:
            step.session.sparkContext.setJobGroup(BACKFILL, "backfill beside the stream", interruptOnCancel=True)
            step.run(state, sizes, since, is_live=False)
        except Exception as error:  # noqa: BLE001  raised again between two batches
            self._failure = error
        except BaseException as error:  # noqa: BLE001  a panic of Polars: the step has not succeeded
            self._failure = RuntimeError(f"{type(error).__name__}: {text_of(error)}")
        self.ended = monotonic()
