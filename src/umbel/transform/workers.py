"""Worker processes of the transformation: parallel, in order, within limits."""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from umbel import errors
from umbel.errors import Terminal
from umbel.isolation.function_limits import FunctionLimits
from umbel.isolation.process import CallFailed, ForkServer, IsolatedProcess
from umbel.transform.parts import ConfigurationText, Done, Letter, Lines, LinesTransform, split

MODULES = ("umbel.transform.work", "umbel.transform.steps")
"""Modules loaded in the fork server, before workers are forked."""
ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(8 << 20)}
"""Settings of glibc: to return the memory of a batch and to get it again took a quarter of the time."""


def started() -> ForkServer:
    """Return a fork server that has begun to load its modules."""
    server = ForkServer(MODULES, ALLOCATION)
    server.start()
    return server


class TransformWorkers:
    """Worker processes of one configuration. A context manager: they end with it.

    Args:
        configuration: the configuration.
        count: how many processes; by default one per core.
        limits: of its code; by default those that the environment sets.
        server: forks the processes; it ends with them.
    """

    def __init__(
        self,
        configuration: ConfigurationText,
        count: int | None = None,
        limits: FunctionLimits | None = None,
        server: ForkServer | None = None,
    ) -> None:
        self.configuration, self.limits = configuration, limits or FunctionLimits.from_environment()
        self.count = count or _cores()
        self._server = server or ForkServer(MODULES, ALLOCATION)
        self._idle: SimpleQueue[IsolatedProcess] = SimpleQueue()
        self._processes = [IsolatedProcess(self._server) for _ in range(self.count)]
        for each in self._processes:
            self._idle.put(each)
        self._payload = _payload(configuration)
        self._is_ending = False

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

    def check(self) -> None:
        """Load the configuration in a worker.

        Raises:
            UmbelError: it is faulty.
        """
        self.result(Lines(""))

    def results(self, parts: Iterable[Lines]) -> Generator[Done, None, None]:
        """Yield the results of parts of the input, in order, few in memory.

        At a pause, those that are complete, and then one without lines.

        Raises:
            Terminal: a step with `on_error: fail` failed.
        """
        pending: deque[Future[Done]] = deque()
        with ThreadPoolExecutor(self.count, thread_name_prefix="transform") as pool:
            try:
                for part in parts:
                    if part.is_pause:
                        yield from _complete(pending, part.name)
                        continue
                    pending.append(pool.submit(self.result, part))
                    if len(pending) > 2 * self.count:
                        yield _first(pending)
                while pending:
                    yield _first(pending)
            finally:
                self._end(pending)

    def _end(self, pending: Collection[Future[Done]]) -> None:
        """End the calls of a run that has stopped, and their processes."""
        self._is_ending = self._is_ending or bool(pending)
        for each in pending:
            each.cancel()
        while pending:
            self._server.close()  # once more where a thread has started it meanwhile
            pending = wait(pending, timeout=0.2).not_done

    def result(self, part: Lines) -> Done:
        """Return the result of lines, in an idle process.

        Raises:
            Terminal: a step with `on_error: fail` failed.
        """
        process = self._idle.get()
        try:
            return self._called(process, part, self.limits.batch_seconds)
        except CallFailed as failed:
            if self._is_ending:
                raise CancelledError from None
            _raise_own(failed, is_any=not part.path and not part.data)
            return self._record_by_record(process, part)
        finally:
            self._idle.put(process)

    def _record_by_record(self, process: IsolatedProcess, part: Lines) -> Done:
        """Return the result of lines of which one ends the process, or exceeds its limits."""
        found = Done(part.name, b"", [])
        for number, line in enumerate(split(part.read())):
            try:
                alone = Lines(part.name, line, is_each=part.is_each, is_apart=True, keys=part.keys)
                one = self._called(process, alone, self.limits.row_seconds)
            except CallFailed as failed:
                if self._is_ending:
                    raise CancelledError from None
                _raise_own(failed)
                one = self._failed(part, line, failed)
            found.data += one.data
            found.letters += [replace(each, row=number) for each in one.letters]
            found.lines += 1
            found.each += one.each or [None]
            for name in ("records", "written", "dropped", "nulls", "one_by_one"):
                setattr(found, name, getattr(found, name) + getattr(one, name))
        return found

    def _failed(self, part: Lines, line: bytes, failed: CallFailed) -> Done:
        """Return the result of a record that ended its process, or exceeded its limits.

        It is not known which step did.

        Raises:
            Terminal: a step that may have done it has `on_error: fail`.
        """
        from umbel.transform.configuration import loads

        applied = loads(self.configuration.text, self.configuration.file).applied
        found = [each for each in applied if each.step.needs_limits]
        names = ", ".join(dict.fromkeys(each.step.name for each in found)) or "limit"
        error, message = "LimitExceeded", failed.reason
        if failed.error is not None:  # an exception that is no Exception
            error, message = failed.error["kind"], failed.error["text"]
        for each in found:
            if each.on_error == "fail" and not part.is_each:
                where = f"{self.configuration.file}:{each.line}"
                raise Terminal(f"step '{each.step.name}': {error}: {message}", where=where)
        if found and not part.keys and all(each.on_error == "drop" for each in found):
            return Done(part.name, b"", [], records=1, dropped=1)
        return Done(part.name, b"", [Letter(0, line, names, "", "", error, message)], records=1)

    def _called(self, process: IsolatedProcess, part: Lines, seconds: float) -> Done:
        memory = self.limits.bytes(part.size)
        found: Done = process.call(
            "work", lambda: self._payload, part, seconds=seconds, memory=memory, is_repeated=part.is_apart
        )
        return found


def _first(pending: deque[Future[Done]]) -> Done:
    """Return the result of the first part, and remove it.

    It stays if there is none.
    """
    found = pending[0].result()
    pending.popleft()
    return found


def _complete(pending: deque[Future[Done]], name: str) -> Iterator[Done]:
    if pending and pending[0].done():
        while pending and pending[0].done():
            yield _first(pending)
        yield Done(name, b"", [])


def _payload(configuration: ConfigurationText) -> bytes:
    return pickle.dumps(LinesTransform(configuration.text, configuration.file))


def _raise_own(failed: CallFailed, *, is_any: bool = False) -> None:
    """Raise an error that a worker reported, if it did.

    Args:
        failed: the call.
        is_any: whether errors of other classes than umbel's are raised, too.
    """
    found = failed.error
    if found is not None and (found["is_own"] or is_any):
        kind = getattr(errors, found["kind"], Terminal) if found["is_own"] else Terminal
        raise kind(found["text"], where=found["where"], hint=found["hint"]) from None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
