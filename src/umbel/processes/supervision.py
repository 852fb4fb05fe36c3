"""Supervision: run child processes, restart dead ones, and leave none behind.

A process started here is the head of a session of its own and dies with the supervisor (its parent), however that one ends. Its
orphans become the supervisor's children, which kills them at any depth and in any process group.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from umbel.processes.process_tree import PARENT, adopt_orphans, die_with, end_family, end_group, end_strays
from umbel.processes.status import full_disk
from umbel.processes.stopping import ONE_STOP, stop_signals

PATIENCE = 30.0
"""Seconds a process has to stop before it is killed."""
STEADY = 30.0
"""Seconds a process must have run for its next death to count as the first."""
LONGEST_WAIT = 30.0
FINAL = 78
"""The exit code of a process that must not be started again: data it needs is damaged."""
LARGEST_LOG = 64 << 20
WORDS = 8192
"""Bytes at the end of a log that are looked at for its last lines."""

Notify = Callable[[str], None]


@dataclass(slots=True)
class SupervisedProcess:
    """A process to run and restart.

    Args:
        name: for messages.
        command: the program and its arguments.
        log: the file its output is appended to; the supervisor's output when None.
        environment: added to the supervisor's.
        first_wait: seconds before it is started again after its first death; doubled with each further one.
    """

    name: str
    command: Sequence[str]
    log: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    first_wait: float = 0.25
    process: subprocess.Popen[bytes] | None = None
    begun_at: float = 0.0
    deaths: int = 0
    start_at: float = 0.0
    _words_from: int = field(default=0, init=False)
    """The place in the log at which it was started; negative for one that was moved."""

    @classmethod
    def umbel(cls, name: str, arguments: Sequence[str], log: Path | None = None) -> SupervisedProcess:
        """Return a subcommand of umbel as a child."""
        return cls(name, [sys.executable, "-P", "-m", "umbel.cli.main", *arguments], log)

    def start(self) -> None:
        """Start the process, in a session of its own."""
        environment = {**os.environ, PARENT: str(os.getpid()), **self.environment}
        with _Output(self.log) as output:
            self._words_from = _size(self.log)
            self.process = subprocess.Popen(
                self.command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  the supervisor has one thread when it starts them
            )
        self.begun_at = time.monotonic()

    def died(self) -> int | None:
        """Return the exit code if the process ended since the last check.

        The rest of its process group is killed.
        """
        if self.process is None or self.process.poll() is None:
            return None
        code, group = self.process.returncode, self.process.pid
        self.process = None
        end_group(group)
        self.deaths = 1 if time.monotonic() - self.begun_at > STEADY else self.deaths + 1
        self.start_at = time.monotonic() + min(LONGEST_WAIT, self.first_wait * 2 ** (self.deaths - 1))
        return code

    def last_words(self, lines: int = 8) -> str:
        """Return the last lines of its log since it was started.

        A full disk is reported behind them.
        """
        if self.log is None or not self.log.exists():
            return ""
        end = _end_of(_older(self.log)) + _end_of(self.log)  # what it said may just have been moved
        size = _size(self.log)
        own = size - self._words_from if size >= self._words_from else size  # else another program has cut the log
        text = end[max(0, len(end) - min(WORDS, own)) :].decode(errors="replace").rstrip()
        full = full_disk(self.log.parent)
        return "\n".join([*text.splitlines()[-lines:], *([full] if full else [])])

    def limit_log(self) -> None:
        """Move the content of a large log to its `.old.log` while it is written to.

        It is copied, and the file cut: the process and its children have the file open, and append to it.
        """
        with suppress(OSError):  # such as of a full disk: nothing is cut, and the next look tries again
            if self.log is None or self.log.stat().st_size <= LARGEST_LOG:
                return
            older = _older(self.log)
            older.unlink(missing_ok=True)  # first: a full disk has room for the copy then
            with self.log.open("rb") as source, older.open("wb") as target:
                shutil.copyfileobj(source, target)
                target.flush()
                shutil.copyfileobj(source, target)  # what was written meanwhile
                moved = target.tell()
            os.truncate(self.log, 0)
            self._words_from -= moved


class Supervisor:
    """Runs processes until a stop signal. To be used from the main thread.

    Args:
        children: the processes to run.
        notify: called with messages about deaths and restarts.
        on_end: called when a child ended by itself, with the reason and its running time in seconds.
        patience: seconds a process has to stop before it is killed.
    """

    def __init__(
        self,
        children: Sequence[SupervisedProcess],
        notify: Notify,
        patience: float = PATIENCE,
        *,
        on_end: Callable[[SupervisedProcess, str, float], None] = lambda *_: None,
    ) -> None:
        self._children, self._notify, self._patience, self._on_end = children, notify, patience, on_end
        self._signals, self._stopped_at = 0, 0.0

    def run(self, each_second: Callable[[], None] = lambda: None) -> None:
        """Run until SIGINT, SIGTERM or SIGHUP; then stop all processes.

        SIGHUP does not count where it is ignored, as under nohup.

        Processes that do not stop within `patience`, or before a second signal, are killed.
        """
        before = {number: signal.signal(number, self._stop) for number in stop_signals()}
        adopt_orphans()
        try:
            for child in self._children:
                child.start()
            looked = 0.0
            while not self._signals:
                self._mind()
                if time.monotonic() - looked >= 1.0:
                    looked = time.monotonic()
                    end_strays(self._known())
                    for child in self._children:
                        child.limit_log()
                    each_second()
                time.sleep(0.05)
        finally:
            self._end()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _mind(self) -> None:
        for child in self._children:
            code = child.died()
            if self._signals:
                return
            if code is not None:
                wait = max(0.0, child.start_at - time.monotonic())
                words = child.last_words()
                self._on_end(child, f"{cause(code)}{': ' if words else ''}{words}", time.monotonic() - child.begun_at)
                if code == FINAL:
                    child.start_at = math.inf
                    self._notify(f"{child.name} has stopped, and is not started again:\n{words}")
                    continue
                detail = f"\n{words}\n  its log: {child.log}" if words else ""
                self._notify(f"{child.name} ended ({cause(code)}); starting it again in {wait:.1f} s{detail}")
            if child.process is None and time.monotonic() >= child.start_at:
                child.start()

    def _known(self) -> set[int]:
        return {child.process.pid for child in self._children if child.process is not None}

    def _stop(self, _: int, __: FrameType | None) -> None:
        now = time.monotonic()
        if not self._signals or now > self._stopped_at + ONE_STOP:
            self._signals, self._stopped_at = self._signals + 1, now

    def _end(self) -> None:
        running = {child.name: child.process for child in self._children if child.process is not None}
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        deadline, hurried = time.monotonic() + self._patience, self._signals + 1
        for name, process in running.items():
            while process.poll() is None and time.monotonic() < deadline and self._signals < hurried:
                time.sleep(0.02)
            if process.poll() is None:
                self._notify(f"{name} (process {process.pid}) does not stop; killing it")
                end_family(process.pid)
            process.wait()
            end_group(process.pid)
        end_strays(set())


def cause(code: int) -> str:
    """Return an exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _older(log: Path) -> Path:
    """Return the file with what was in a log before."""
    return log.with_suffix(".old.log")


def _size(log: Path | None) -> int:
    return log.stat().st_size if log is not None and log.exists() else 0


def _end_of(log: Path) -> bytes:
    """Return the last bytes of a log, none if it is missing."""
    with suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - WORDS))
        return file.read()
    return b""


class _Output:
    """The output file of a child, open while it is started."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: int | None = None

    def __enter__(self) -> int | None:
        if self._path is None:
            return None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > LARGEST_LOG:
            self._path.replace(_older(self._path))
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return self._file

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)
