"""The worker's status, in small files readable by other processes of the machine.

`work.json` is written by the worker: every second by a separate thread, so that a long batch does not look like a dead worker.
`work-failures.json` has the last unexpected ends of the worker; its supervisor writes it, or the next worker where there is none.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import psutil

from umbel.errors import unwrapped

FILE, FAILURES = "work.json", "work-failures.json"
STARTING, RUNNING, STOPPED, FAILED = "starting", "running", "stopped", "failed"
BEAT = 1.0
"""Seconds between two heartbeats."""
RETAINED = 10
"""Number of failures that are retained."""
FULL = 1 << 20
"""Free bytes below which a disk counts as full."""


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a worker. Instants are seconds since the epoch.

    Args:
        state: `starting`, `running`, `stopped` or `failed`.
        process: its id.
        at: the last heartbeat.
        batch: the last batch finished, None for none since it started.
        batch_at: the time of its end.
        begun_at: start time of the worker.
        progress_at: time of the last progress: a batch begun or finished, or a part of one.
        doing: the batch being processed; empty while it waits for input.
        host: the machine it runs on.
        reason: why it failed.
        since_boot: seconds from the start of the machine to that of the process, which no change of the clock alters.
    """

    state: str
    process: int
    at: float
    batch: int | None = None
    batch_at: float | None = None
    begun_at: float = 0.0
    progress_at: float = 0.0
    doing: str = ""
    host: str = ""
    reason: str = ""
    since_boot: float | None = None

    @property
    def is_running(self) -> bool:
        """Return True if the worker is processing data."""
        return self.state == RUNNING


@dataclass(frozen=True, slots=True)
class Failure:
    """An unexpected end of the worker.

    Args:
        at: time of the end, in seconds since the epoch.
        ran_for: seconds from its start.
        reason: the exit code or signal, and the end of its log.
    """

    at: float
    ran_for: float
    reason: str


@dataclass(frozen=True, slots=True)
class Failures:
    """Unexpected ends of the worker since it was last started by a person.

    Args:
        count: their number.
        last: the last ones, oldest first.
    """

    count: int = 0
    last: tuple[Failure, ...] = ()


_beating: list[Heartbeat] = []
"""The heartbeat of this process, if it is a worker."""


def progressed() -> None:
    """Record progress within a batch, if this process is a worker."""
    for each in _beating:
        each.progressed()


def stopped() -> None:
    """Record that this process is stopped, if it is a worker."""
    for each in _beating:
        each.stopped()


@dataclass
class Heartbeat:
    """Writes the status of this process, the worker, while a block runs.

    Args:
        directory: umbel's folder.
    """

    directory: Path
    _status: Status = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _ends: threading.Event = field(default_factory=threading.Event, init=False)

    def __enter__(self) -> Self:
        now, host, since_boot = time.time(), platform.node(), seconds_since_boot(psutil.Process())
        self._status = Status(
            STARTING, os.getpid(), now, begun_at=now, progress_at=now, host=host, since_boot=since_boot
        )
        self._write()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()
        _beating.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        _beating.remove(self)
        self._ends.set()
        self._thread.join()
        if error is not None and not (isinstance(error, SystemExit) and not error.code):
            original = unwrapped(error)
            self.failed(f"{type(original).__name__}: {original}")
        elif self._status.state != FAILED:
            self.stopped()

    def running(self) -> None:
        """Record that the worker is processing data."""
        self._set(state=RUNNING, progress_at=time.time())

    def stopped(self) -> None:
        """Record that the worker is stopped."""
        self._set(state=STOPPED, doing="")

    def failed(self, reason: str) -> None:
        """Record that the worker fails."""
        self._set(state=FAILED, reason=reason[:4000], doing="")

    def began(self, number: int) -> None:
        """Record the start of a batch, written with the next heartbeat."""
        with self._lock:
            self._status = replace(self._status, doing=f"batch {number}", progress_at=time.time())

    def progressed(self) -> None:
        """Record progress within a batch, written with the next heartbeat."""
        with self._lock:
            self._status = replace(self._status, progress_at=time.time())

    def finished(self, number: int) -> None:
        """Record the end of a batch, written with the next heartbeat."""
        now = time.time()
        with self._lock:
            self._status = replace(self._status, doing="", batch=number, batch_at=now, progress_at=now)

    def _set(self, **values: Any) -> None:
        with self._lock:
            self._status = replace(self._status, **values)
        self._write()

    def _beat(self) -> None:
        while not self._ends.wait(BEAT):
            self._write()

    def _write(self) -> None:
        with self._lock:
            self._status = replace(self._status, at=time.time())
            with suppress(OSError):  # a full disk must not end a worker that waits for disk space
                _replace(self.directory / FILE, asdict(self._status))


def seconds_since_boot(process: psutil.Process) -> float:
    """Return the seconds from the start of the machine to that of a process."""
    return process.create_time() - psutil.boot_time()


def write_status(directory: Path, state: str, batch: int | None = None) -> None:
    """Write the status of this process once."""
    now = time.time()
    status = Status(state, os.getpid(), now, batch, batch and now, now, now, host=platform.node())
    _replace(directory / FILE, asdict(status))


def read_status(directory: Path) -> Status | None:
    """Return the last status of the worker; None if missing or unreadable."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        return Status(**json.loads((directory / FILE).read_bytes()))
    return None


def forget_status(directory: Path) -> None:
    """Delete the status and the failures of an earlier worker."""
    for name in (FILE, FAILURES):
        (directory / name).unlink(missing_ok=True)


def note_failure(directory: Path, reason: str, ran_for: float) -> None:
    """Record an unexpected end of the worker."""
    before = read_failures(directory)
    last = (*before.last, Failure(time.time(), ran_for, reason[:4000]))[-RETAINED:]
    with suppress(OSError):
        _replace(directory / FAILURES, asdict(Failures(before.count + 1, last)))


def note_last_end(directory: Path) -> None:
    """Record the end of the previous worker, where no supervisor does."""
    last = read_status(directory)
    if last is None or last.state == STOPPED:
        (directory / FAILURES).unlink(missing_ok=True)
    else:
        note_failure(directory, last.reason or "it ended without saying why: killed, perhaps", last.at - last.begun_at)


def read_failures(directory: Path) -> Failures:
    """Return the unexpected ends of the worker."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        content = json.loads((directory / FAILURES).read_bytes())
        return Failures(content["count"], tuple(Failure(**each) for each in content["last"]))
    return Failures()


def full_disk(folder: Path) -> str:
    """Return a report that the disk of a folder is full, or nothing.

    A process that ends for lack of space cannot write why.
    """
    with suppress(OSError):
        if shutil.disk_usage(folder).free < FULL:
            return f"the disk of {folder} is full: free some space"
    return ""


def _replace(path: Path, content: Any) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        fresh.write_text(json.dumps(content))
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
