"""Worker processes of the transformation: parallel, in order, within limits."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from umbel.errors import Terminal
from umbel.isolation.process import CallFailed, ForkServer, IsolatedProcess
from umbel.transform.batches import BatchTransform, TransformedBatch
from umbel.transform.configuration import Configuration, loads
from umbel.transform.records import Letter
from umbel.transform.server import MODULES


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """Limits of the code in a configuration.

    Args:
        row_seconds: seconds a record may take that exceeded the limit of its batch.
        batch_seconds: seconds a batch may take.
        memory: bytes a worker process may gain in a batch.
    """

    row_seconds: float = 10.0
    batch_seconds: float = 60.0
    memory: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of input: bytes, or a range of a file.

    Args:
        name: of the input, for dead letters.
        data: the lines, if there is no path.
        path: the file.
        begin: the first byte of the range: the start of a line.
        end: the byte behind the last.
        error: why the input cannot be read further; empty if it can.
        is_each: whether the output of each line is needed.
    """

    name: str
    data: bytes = b""
    path: str = ""
    begin: int = 0
    end: int = 0
    error: str = ""
    is_each: bool = False

    def read(self) -> bytes:
        """Return the lines."""
        if not self.path:
            return self.data
        with Path(self.path).open("rb") as file:
            file.seek(self.begin)
            return file.read(self.end - self.begin)


@dataclass(slots=True)
class Done:
    """The result of some lines.

    Args:
        name: of the input.
        data: the output records.
        letters: the dead letters, with the numbers of their lines in the input.
        lines: how many lines were read, blank ones too.
        records, written, dropped, nulls, one_by_one: as of a batch.
        each: the output of each line, if needed; None where it has none.
    """

    name: str
    data: bytes
    letters: list[Letter]
    lines: int = 0
    records: int = 0
    written: int = 0
    dropped: int = 0
    nulls: int = 0
    one_by_one: int = 0
    each: list[bytes | None] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, lines: list[bytes], result: TransformedBatch) -> Done:
        """Return the result of a batch; `lines` has the blank ones, too."""
        letters = result.letters
        if letters and len(lines) > result.records:
            numbers = [number for number, line in enumerate(lines) if line and not line.isspace()]
            letters = [replace(each, row=numbers[each.row]) for each in letters]
        counts = (len(lines), result.records, result.written, result.dropped, result.nulls, result.one_by_one)
        return cls(name, result.data, letters, *counts)


def split(data: bytes) -> list[bytes]:
    """Return the lines of some bytes, blank ones too."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def transformed(transform: BatchTransform, lines: Lines) -> Done:
    """Return the result of some lines.

    Raises:
        Terminal: a step with `on_error: fail` failed.
    """
    if lines.error:
        letter = Letter(0, lines.data, "read", "", "", "Damaged", lines.error)
        return Done(lines.name, b"", [letter], lines=1, records=1)
    data = lines.read()
    found = split(data)
    if data.count(b"\n{") + data.startswith(b"{") == len(found):  # none is blank
        result = transform(found, data)
        done = Done.of(lines.name, found, result)
        if lines.is_each:
            done.each = result.each
        return done
    return Done.of(lines.name, found, transform([each for each in found if each.strip()]))


class LinesTransform:
    """The transformation of lines, callable in a worker process.

    Args:
        text: the configuration as written.
        file: its name.
    """

    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        self._transform: BatchTransform | None = None

    def __call__(self, lines: Lines) -> Done:
        if self._transform is None:
            self._transform = BatchTransform(loads(self._text, self._file))
        return transformed(self._transform, lines)


class TransformWorkers:
    """Worker processes of one configuration. A context manager: they end with it.

    Args:
        configuration: the configuration.
        count: how many processes; by default one per core.
        limits: of its code.
        server: forks the processes; it ends with them.
    """

    def __init__(
        self,
        configuration: Configuration,
        count: int | None = None,
        limits: WorkLimits | None = None,
        server: ForkServer | None = None,
    ) -> None:
        self.configuration, self.limits = configuration, limits or WorkLimits()
        self.count = count or _cores()
        self._server = server or ForkServer(MODULES)
        self._idle: SimpleQueue[IsolatedProcess] = SimpleQueue()
        self._processes = [IsolatedProcess(self._server) for _ in range(self.count)]
        for each in self._processes:
            self._idle.put(each)
        self._payload = _payload(configuration)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        for each in self._processes:
            each.close()
        self._server.close()

    def results(self, parts: Iterable[Lines]) -> Iterator[Done]:
        """Yield the results of parts of the input, in order, few in memory.

        Raises:
            Terminal: a step with `on_error: fail` failed.
        """
        pending: deque[Future[Done]] = deque()
        with ThreadPoolExecutor(self.count, thread_name_prefix="transform") as pool:
            try:
                for part in parts:
                    pending.append(pool.submit(self.result, part))
                    if len(pending) > 2 * self.count:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                for each in pending:
                    each.cancel()

    def result(self, part: Lines) -> Done:
        """Return the result of lines, in an idle process.

        Raises:
            Terminal: a step with `on_error: fail` failed.
        """
        process = self._idle.get()
        try:
            return self._called(process, part, self.limits.batch_seconds)
        except CallFailed as failed:
            _raise_own(failed)
            return self._record_by_record(process, part)
        finally:
            self._idle.put(process)

    def _record_by_record(self, process: IsolatedProcess, part: Lines) -> Done:
        """Return the result of lines of which one ends the process, or exceeds its limits."""
        found = Done(part.name, b"", [])
        for number, line in enumerate(split(part.read())):
            try:
                one = self._called(process, Lines(part.name, line, is_each=part.is_each), self.limits.row_seconds)
            except CallFailed as failed:
                _raise_own(failed)
                one = Done(part.name, b"", [self._letter(line, failed)], records=1)
            found.data += one.data
            found.letters += [replace(each, row=number) for each in one.letters]
            found.lines += 1
            found.each += one.each or [None]
            for name in ("records", "written", "dropped", "nulls", "one_by_one"):
                setattr(found, name, getattr(found, name) + getattr(one, name))
        return found

    def _letter(self, line: bytes, failed: CallFailed) -> Letter:
        names = dict.fromkeys(each.step.name for each in self.configuration.applied if each.step.python() is not None)
        return Letter(0, line, ", ".join(names) or "limit", "", "", "LimitExceeded", failed.reason)

    def _called(self, process: IsolatedProcess, part: Lines, seconds: float) -> Done:
        found: Done = process.call("work", lambda: self._payload, part, seconds=seconds, memory=self.limits.memory)
        return found


@lru_cache(maxsize=8)
def runner(text: str, file: str) -> Callable[[Lines], Done]:
    """Return what transforms lines: for a configuration with code a process of its own, which has limits.

    It is cached: the processes of Spark and of umbel's workers run many batches.
    """
    configuration = loads(text, file)
    return TransformWorkers(configuration, 1).result if configuration.has_python else LinesTransform(text, file)


def _payload(configuration: Configuration) -> bytes:
    import pickle

    return pickle.dumps(LinesTransform(configuration.text, configuration.file))


def _raise_own(failed: CallFailed) -> None:
    """Raise an error that a worker reported, if it did."""
    if failed.error is not None:
        raise Terminal(failed.error["text"], where=failed.error["where"], hint=failed.error["hint"]) from None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
