"""Polling: a thread per source reads its server beside the planning of batches.

So a slow server delays no other source.

A thread reads for one source as long as batches are planned for it. A lock on the source's folder keeps a second process
from reading meanwhile, such as the worker before this one.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from umbel.connectors.lag import SourceLag
from umbel.errors import Transient, UmbelError, text_of
from umbel.state import disk

log = logging.getLogger("umbel.work")

FIRST_WAIT, LONGEST_WAIT = 0.5, 10.0
"""Seconds between two attempts to reach a server: the first, and the longest after doubling."""
SILENT = 60.0
"""Seconds without an answer, of a server whose requests nothing else limits, from which on it is reported."""
UNUSED = 60.0
"""Seconds without a batch being planned after which a thread ends."""


class Polled(Protocol):
    """A source that is read by a thread."""

    @property
    def folder(self) -> Path:
        """The folder that only one process may write to."""

    @property
    def title(self) -> str:
        """The description of the source, for messages."""

    def take_over(self) -> None:
        """Forget what is known of the folder: another process may have written to it."""

    def release(self) -> None:
        """Close what is open at the server: another process may read from now on."""

    def read_on(self, poller: Poller) -> float:
        """Read what is new; return the seconds until it should be called again.

        Raises:
            Transient: it is called again soon.
            UmbelError: it is called again later; somebody must do something about it.
        """

    def report(self, error: UmbelError) -> None:
        """Make a lasting error visible; called once for equal errors in a row."""


class Poller:
    """The thread that reads one source.

    Args:
        source: the source.
    """

    def __init__(self, source: Polled) -> None:
        self.source = source
        self.planned = self.consumed = 0
        """The last part that a batch reads, and the last one that the batches before that one read."""
        self.lag = SourceLag()
        """What the server has beyond what was staged."""
        self.unread: set[str] | None = None
        """The partitions that the server has more of; None if the source has none, or before that is known."""
        self.due = math.inf
        """Seconds until the rest of a source is to be read of which a part failed."""
        self.trouble = ""
        """The error of the last attempt; empty if it succeeded."""
        self._pending, self._pending_since = "", 0.0
        self._started_at = self._renewed_at = time.monotonic()
        self._stopped, self._idle = threading.Event(), threading.Event()
        self._failures, self._reported, self._retry_at = 0, "", 0.0
        self._thread = threading.Thread(target=self._run, name=f"poll {source.title}", daemon=True)
        self._thread.start()

    def renew(self, patience: float = 0.0) -> None:
        """Note that a batch is being planned; wait a little after the start for rows."""
        self._renewed_at = time.monotonic()
        self._idle.wait(max(0.0, self._started_at + patience - self._renewed_at))

    def advance(self, part: int) -> None:
        """Note the last part that the batches planned so far read."""
        if part > self.planned:
            self.planned, self.consumed = part, self.planned

    def progressed(self, lag: SourceLag) -> None:
        """Note the lag within a long read, which is no trouble then."""
        self.lag, self.trouble = lag, ""

    def requests(self, subject: str) -> None:
        """Note a request that may never return.

        Args:
            subject: of the request; empty when it has returned.
        """
        self._pending_since, self._pending = time.monotonic(), subject

    @property
    def may_retry(self) -> bool:
        """True if what failed may be read again."""
        return time.monotonic() >= self._retry_at

    @property
    def silence(self) -> str:
        """The report of a request that does not return, or nothing."""
        pending, waited = self._pending, time.monotonic() - self._pending_since
        return f"{pending} has not answered for {waited:.0f} s" if pending and waited > SILENT else ""

    @property
    def is_alive(self) -> bool:
        """True until the thread ends."""
        return self._thread.is_alive() and not self._stopped.is_set()

    @property
    def is_stopping(self) -> bool:
        """True if the thread should end.

        Nobody plans batches any more, or the source is read in another way from now on.
        """
        return self._stopped.is_set() or time.monotonic() - self._renewed_at > UNUSED

    def stop(self, patience: float = 10.0) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(patience)

    def _run(self) -> None:
        try:
            disk.make_folder(self.source.folder)
            while not self.is_stopping:
                with _alone(self.source.folder) as is_alone:
                    self.source.take_over()
                    try:
                        while is_alone and not self.is_stopping:
                            wait = self._attempt()
                            self._idle.set()
                            self._rest(wait)
                    finally:
                        self.source.release()
                self._rest(FIRST_WAIT)
        finally:
            self._stopped.set()
            self._idle.set()

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.is_stopping and (left := until - time.monotonic()) > 0:
            self._stopped.wait(min(left, 1.0))

    def _attempt(self) -> float:
        self.due = math.inf
        try:
            wait = self.source.read_on(self)
        except Transient as error:
            return self._failed(error)
        except UmbelError as error:
            self.trouble = error.message
            if self._reported != error.message:
                log.error("%s: %s", self.source.title, error)
                self._report(error)
            return self._failed(None)
        except BaseException as error:  # the thread must not end: the source would be read no more
            self.trouble = f"{type(error).__name__}: {text_of(error, always=True)}"[:500]
            log.exception("%s: %s", self.source.title, type(error).__name__)
            return self._failed(None)
        if self.due < math.inf:  # what failed before is still to be read
            return max(0.0, min(wait, self._retry_at - time.monotonic()))
        if self._failures:
            log.warning("%s: it can be read again", self.source.title)
        self._failures, self._reported, self.trouble = 0, "", ""
        return wait

    def _report(self, error: UmbelError) -> None:
        """Make a lasting error visible; what is damaged may take no report either."""
        self._reported = error.message
        try:
            self.source.report(error)
        except (UmbelError, OSError) as failed:
            log.warning("%s: the error cannot be reported: %s", self.source.title, failed)

    def _failed(self, error: UmbelError | None) -> float:
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(self._failures, 10))
        self._retry_at = time.monotonic() + wait
        self._failures += 1
        if error is not None:
            self.trouble = error.message
        if error is not None and self._failures == 1:
            log.warning("%s: %s; it is tried again", self.source.title, error.message)
        return min(wait, self.due)


def seconds_left(polled_at: float, every: float) -> float:
    """Return the seconds until the next read is due, negative if it is late.

    A read of the future is none: the clock was set back, and would have to catch up first.

    Args:
        polled_at: the time of the last read, in seconds since the epoch.
        every: the seconds between two.
    """
    elapsed = time.time() - polled_at
    return every - elapsed if elapsed >= 0 else 0.0


_POLLERS: dict[Path, Poller] = {}
_GUARD = threading.Lock()


def poller_of(source: Polled) -> Poller:
    """Return the thread that reads a source in this process, started if needed."""
    with _GUARD:
        found = _POLLERS.get(source.folder)
        if found is not None and found.source != source:
            found.stop()
        if found is None or not found.is_alive:
            found = _POLLERS[source.folder] = Poller(source)
        return found


def advance(folder: Path, part: int) -> None:
    """Note the parts of a folder that batches read, if this process has its thread."""
    found = _POLLERS.get(folder)
    if found is not None:
        found.advance(part)


def reader_state(folder: Path) -> tuple[SourceLag, str]:
    """Return the lag and the trouble of the thread that reads into a folder."""
    found = _POLLERS.get(folder)
    return (found.lag, found.trouble or found.silence) if found is not None else (SourceLag(), "")


def unread_of(folder: Path) -> frozenset[str] | None:
    """Return the partitions with rows that were not read into a folder; None if unknown."""
    found = _POLLERS.get(folder)
    unread = found.unread if found is not None else None
    return None if unread is None else frozenset(unread)


def stop_polling(folder: Path) -> None:
    """End the threads that read into a folder or below it."""
    with _GUARD:
        for each in [each for each in _POLLERS if each.is_relative_to(folder)]:
            _POLLERS.pop(each).stop()


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Lock a folder for this process, if no other has the lock."""
    file = os.open(folder / "poll.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)
