"""Run a measured program as a process of its own, and watch the memory of its whole tree from outside."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG

import psutil

from umbel.processes.allocation import retaining

GIB = 1 << 30
EVERY = 0.2
"""Seconds between two looks at the memory."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a program reported, and what it took.

    Args:
        report: the object in the last line it printed.
        rss: peak of the summed resident memory of its processes, in bytes; shared pages count in each.
        pss: the same with shared pages divided among the processes that share them.
        samples: (seconds since the epoch, anonymous memory) all along; what no file backs and the system cannot take back.
    """

    report: dict[str, float]
    rss: int
    pss: int
    samples: tuple[tuple[float, int], ...] = field(repr=False)


def measure(module: str, *arguments: str) -> Measured:
    """Run `python -m module arguments…`, which ends by printing one line of JSON.

    Raises:
        CalledProcessError: it failed.
    """
    command, environment = [sys.executable, "-m", module, *arguments], retaining(os.environ)  # as a worker has it
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    watch = Watch(process.pid)
    watch.start()
    try:
        output, _ = process.communicate()
    finally:
        watch.stop()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, [module, *arguments], output)
    return Measured(json.loads(output.splitlines()[-1]), watch.rss, watch.pss, tuple(watch.samples))


def disk_of(folder: Path) -> int:
    """Return the bytes that the files of a folder take on the disk; it may change meanwhile."""
    found = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # merges delete files
            facts = path.stat()
            found += facts.st_blocks * 512 if S_ISREG(facts.st_mode) else 0
    return found


class Watch(threading.Thread):
    """A thread that looks at the memory of a process and all its descendants until stopped."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.root = psutil.Process(process)
        self.rss = self.pss = 0
        self.samples: list[tuple[float, int]] = []
        self._done = threading.Event()

    def run(self) -> None:
        """Look until stopped."""
        while not self._done.wait(EVERY):
            rss, pss, anonymous = memory_of(self.root)
            self.rss, self.pss = max(self.rss, rss), max(self.pss, pss)
            self.samples.append((time.time(), anonymous))

    def stop(self) -> None:
        """End the thread."""
        self._done.set()
        self.join()


def memory_of(root: psutil.Process) -> tuple[int, int, int]:
    """Return the summed (resident, proportional, anonymous) memory of a process and its descendants, in bytes."""
    rss = pss = anonymous = 0
    for process in _tree(root):
        try:
            memory = process.memory_full_info()
        except psutil.Error:
            continue
        rss += memory.rss
        pss += getattr(memory, "pss", memory.rss)
        anonymous += memory.rss - memory.shared
    return rss, pss, anonymous


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
