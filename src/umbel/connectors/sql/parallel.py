"""Reading ranges of a table by several processes, each with a connection of its own.

Processes, since drivers make rows of bytes in Python, which uses one processor of a process. Rows come in the order of the
ranges: what is read ahead waits in memory, within bounds. What the process of a killed worker still reads goes nowhere.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self, TypeAlias

from umbel.connectors.sql.range_process import DONE, FAILED
from umbel.connectors.sql.ranges import Range, RangeReader
from umbel.connectors.sql.readiness import wait_readable
from umbel.errors import Transient
from umbel.isolation.wire import receive, send

STOP_CHECK = 0.5
"""Seconds between two checks whether to stop, while no rows come."""
AHEAD_BYTES = 64 << 20
"""Bytes of staged form that may wait for the rows before them, for each connection."""
_ONE_THREAD = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
EncodedPart: TypeAlias = tuple[bytes, int, Mapping[str, Any]]
"""Rows as they are written, how many they are, and facts about them."""


def read_ranges(
    reader: RangeReader, ranges: Sequence[Range], connections: int, is_stopping: Callable[[], bool]
) -> Iterator[EncodedPart]:
    """Yield the rows of ranges in order; end early if reading is to stop.

    Args:
        reader: reads a range.
        ranges: at least one.
        connections: how many read at once, at most.
        is_stopping: whether to stop.

    Raises:
        UmbelError: a range cannot be read.
    """
    with ExitStack() as stack:
        count = min(connections, len(ranges))
        processes = [stack.enter_context(_Process(reader)) for _ in range(count)]
        yield from _Reading(processes, ranges).parts(is_stopping)


class _Process:
    """A process that reads one range at a time, for the length of a block."""

    def __init__(self, reader: RangeReader) -> None:
        self.connection, theirs = socket.socketpair()
        self.range: int | None = None
        """The place of the range that it reads, None for none."""
        environment = {**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "umbel.connectors.sql.range_process", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=2, env=environment
            )
        self.send(reader)

    def send(self, message: Any) -> None:
        """Send it a message."""
        try:
            send(self.connection, message)
        except ConnectionError:
            raise self._gone() from None

    def receive(self) -> tuple[Any, ...]:
        """Return its next message.

        Raises:
            UmbelError: it failed.
        """
        try:
            found: tuple[Any, ...] = receive(self.connection)
        except EOFError:
            raise self._gone() from None
        if found[0] == FAILED:
            _, error, message, hint = found
            raise error(message, hint=hint)
        return found

    @staticmethod
    def _gone() -> Transient:
        return Transient("a process that read a range of the table has ended", hint="see that there is memory for it")

    def fileno(self) -> int:
        """Return the descriptor that is readable when it has a message."""
        return self.connection.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self._process.kill()
        self._process.wait()


class _Reading:
    """Ranges that are read by processes.

    Args:
        processes: these.
        ranges: all, in order.
    """

    def __init__(self, processes: Sequence[_Process], ranges: Sequence[Range]) -> None:
        self._processes, self._ranges = processes, ranges
        self._next = self._turn = 0
        self._waiting: list[deque[EncodedPart]] = [deque() for _ in ranges]
        self._read = [False] * len(ranges)
        self._bytes = 0

    def parts(self, is_stopping: Callable[[], bool]) -> Iterator[EncodedPart]:
        """Yield the rows of all ranges in order."""
        while self._turn < len(self._ranges) and not is_stopping():
            self._assign()
            for process in wait_readable(self._receivable(), STOP_CHECK):
                self._take(process)
            yield from self._ready()

    def _assign(self) -> None:
        """Let each process that has none read the next range, unless much waits already."""
        has_room = self._bytes < AHEAD_BYTES * len(self._processes)
        for process in self._processes:
            if process.range is None and self._next < len(self._ranges) and (has_room or self._next == self._turn):
                process.range, self._next = self._next, self._next + 1
                process.send(self._ranges[process.range])

    def _receivable(self) -> list[_Process]:
        """Return the processes whose messages there is room for."""
        has_room = self._bytes < AHEAD_BYTES * len(self._processes)
        return [each for each in self._processes if each.range is not None and (has_room or each.range == self._turn)]

    def _take(self, process: _Process) -> None:
        kind, *content = process.receive()
        assert process.range is not None
        if kind == DONE:
            self._read[process.range], process.range = True, None
            return
        body, rows, facts = content
        self._waiting[process.range].append((body, rows, facts))
        self._bytes += len(body)

    def _ready(self) -> Iterator[EncodedPart]:
        """Yield what waits, up to the end of what was read without a gap."""
        while self._turn < len(self._ranges):
            waiting = self._waiting[self._turn]
            while waiting:
                part = waiting.popleft()
                self._bytes -= len(part[0])
                yield part
            if not self._read[self._turn]:
                return
            self._turn += 1
