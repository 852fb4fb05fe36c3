"""A mark of the user function in flight, readable after its process has died.

The mark is a write of some bytes to an open file: it outlives the process, though not the machine; for a crash of that no
function is blamed. The file is locked by its process, so a process that can lock it knows that the writer is gone. A call that
does not return is ended by a timer of the operating system whose signal ends the process: that needs neither a thread nor the
interpreter's lock, which the function may hold.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from umbel.isolation.memory import limited

FOLDER = "running"
WIDTH = 256
_NOTHING = b" " * WIDTH


class InFlight:
    """The in-flight mark of this process.

    Args:
        directory: of the deployment.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = -1
        self._pid = 0

    @contextmanager
    def calling(self, function: str, title: str, seconds: float, memory: int) -> Iterator[None]:
        """Mark and limit a call for the duration of a block.

        Args:
            function: the content of the mark.
            title: for messages.
            seconds: after which the process ends.
            memory: bytes after which allocations fail.
        """
        os.pwrite(self._opened(), f"{function} {title}".encode()[:WIDTH].ljust(WIDTH), 0)
        timed = signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        if timed:
            signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            with limited(memory):
                yield
        finally:
            if timed:
                signal.setitimer(signal.ITIMER_REAL, 0)
                _forget_handler()
            os.pwrite(self._file, _NOTHING, 0)

    def left_behind(self) -> Iterator[tuple[str, str]]:
        """Yield functions, with titles, that were in flight when their process ended.

        Only processes of this machine are considered. A mark is removed when the next one is requested from the iterator, so a
        mark whose handling failed is found again.
        """
        for path in self._folder.glob(f"{socket.gethostname()}-*"):
            with suppress(OSError), path.open("rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the process lives
                function, _, title = file.read(WIDTH).decode(errors="replace").strip(" \0").partition(" ")
                if function:
                    yield function, title
                path.unlink(missing_ok=True)

    def _opened(self) -> int:
        if self._pid != os.getpid():
            path = self._folder / f"{socket.gethostname()}-{os.getpid()}-{threading.get_native_id()}"
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._pid = os.getpid()
            atexit.register(self._remove, path, self._pid)
        return self._file

    @staticmethod
    def _remove(path: Path, state_id: int) -> None:
        if state_id == os.getpid():
            path.unlink(missing_ok=True)


def _forget_handler() -> None:
    """Remove an alarm handler that a call has left; no later call would be timed."""
    if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        with suppress(ValueError):  # only the main thread sets handlers: a call in another one has set none
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
