"""Child processes for the users' extractors, isolating the server from failures.

Children are shared by all extractors; each extractor uses only a few of them at a time, so hanging calls of one leave children
to the others. A caller waits no longer than a call may take.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b

import cloudpickle
import polars as pl

from umbel.isolation.function_limits import FRAME_COPIES, ROW_TIME, setting
from umbel.isolation.process import CallFailed, ForkServer, IsolatedProcess
from umbel.query.extractor_groups import ExtractorGroup, GroupCall
from umbel.query.functions import (
    Computed,
    ExtractorCall,
    ExtractorEnded,
    ExtractorFailed,
    ExtractorRefused,
    ExtractorTimedOut,
    FunctionStep,
)
from umbel.query.isolated import MODULES, IsolatedGroup, IsolatedStep, answered
from umbel.query.session import QuerySession

SECONDS = "UMBEL_EXTRACTOR_SECONDS"
MEMORY = "UMBEL_EXTRACTOR_MEMORY"
EACH, MOST, IDLE = 16, 64, 16
"""The largest number of concurrent calls of one extractor, of all extractors, and of idle children."""
LOADING = 60.0
"""Seconds a child may take to load a function and its imports."""
NAMING = 1.0
"""Seconds for finding the row that an extractor fails on, when nothing is left of the time of the call."""
KNOWN = 256
QUICK = 0.05
"""Seconds that extractors take in all, each by its last call alone, up to which they are called together."""
TOGETHER = 0.5
"""Seconds that extractors which were that quick may take together, besides some for each row. Then they are called one by one,
each with all the time of a call: one that hangs is reported as if it had been called alone."""
_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class _Function:
    """An extractor that has been called."""

    step: FunctionStep
    key: str
    payload: bytes
    slots: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(EACH))
    seconds: float = math.inf
    """What its last call alone took; infinite if it failed."""


class Extractors:
    """Calls extractors in children. Threads may share it.

    Args:
        seconds: a call may take, besides some time for each row.
        batch_seconds: a call for many rows may take, if that is more: `seconds` for each row up to this.
        memory: MiB a child may gain during a call.
        is_naming: whether to find the row that an extractor fails on, for the message.
    """

    def __init__(
        self,
        seconds: float | None = None,
        memory: float | None = None,
        *,
        batch_seconds: float = 0.0,
        is_naming: bool = True,
    ) -> None:
        self._seconds = setting(SECONDS, 5.0) if seconds is None else seconds
        self._batch_seconds = batch_seconds
        self._memory = int((setting(MEMORY, 1024.0) if memory is None else memory) * (1 << 20))
        self._is_naming = is_naming
        self._server = ForkServer(MODULES)
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MOST)
        self._idle: list[IsolatedProcess] = []
        self._functions: OrderedDict[int, _Function] = OrderedDict()

    def start(self) -> None:
        """Start the fork server, so that the first call need not wait for it."""
        self._server.start()

    def close(self) -> None:
        """End all children."""
        with self._lock:
            self._idle.clear()
        self._server.close()

    def compute(self, step: FunctionStep, call: ExtractorCall, session: QuerySession) -> list[Computed]:
        """Return the features an extractor computes.

        Raises:
            ExtractorFailed: it raises, takes too long or too much, or ends its process; the message names the row.
        """
        function = self._function(step)
        alone = max(self._seconds, min(self._seconds * call.height, self._batch_seconds))
        seconds = alone + call.height * ROW_TIME
        deadline = time.monotonic() + seconds
        with self._child(function, seconds) as child:
            try:
                return self._called(child, function, call, session, seconds)
            except CallFailed as failed:
                row = self._row(child, function, call, session, failed, deadline)
                raise _explained(step, call, failed, row) from None

    def compute_group(self, group: ExtractorGroup, call: GroupCall, session: QuerySession) -> list[Computed] | None:
        """Return the features that quick extractors compute, called together.

        None if one is not known to be quick, or none of the idle children knows all of them, or it fails: they have to be
        called one by one then, which finds the one that is the cause.
        """
        with self._lock:
            known = [self._functions.get(id(step)) for step in group.steps]
        functions = [each for each in known if each is not None]
        if len(functions) < len(known) or sum(each.seconds for each in functions) > QUICK:
            return None
        keys = tuple(each.key for each in functions)
        with ExitStack() as stack:
            for slots in (*(each.slots for each in functions), self._slots):
                if not slots.acquire(blocking=False):
                    return None
                stack.callback(slots.release)
            child = self._idle_one(*keys)
            if child is None:
                return None
            stack.callback(self._returned, child)
            memory = self._memory_of(call.columns)
            try:
                found: list[Computed] | None = child.call_together(
                    keys,
                    IsolatedGroup(call),
                    seconds=min(self._seconds, TOGETHER) + len(call.at) * ROW_TIME,
                    memory=memory,
                    answers=lambda question: answered(session, question),
                )
            except CallFailed:
                for each in functions:  # until its next call alone has succeeded
                    each.seconds = math.inf
                return None
        return found

    def _memory_of(self, columns: Mapping[str, pl.Series]) -> int:
        return self._memory + FRAME_COPIES * sum(int(column.estimated_size()) for column in columns.values())

    def _called(
        self, child: IsolatedProcess, function: _Function, call: ExtractorCall, session: QuerySession, seconds: float
    ) -> list[Computed]:
        def payload() -> bytes:
            return function.payload

        memory = self._memory_of(call.columns)
        if not child.knows(function.key):
            child.call(function.key, payload, None, seconds=max(LOADING, seconds), memory=memory)
        begun, function.seconds = time.monotonic(), math.inf
        found: list[Computed] = child.call(
            function.key,
            payload,
            call,
            seconds=seconds,
            memory=memory,
            answers=lambda question: answered(session, question),
            is_repeated=call.height == 1,
        )
        function.seconds = time.monotonic() - begun
        return found

    def _row(
        self,
        child: IsolatedProcess,
        function: _Function,
        call: ExtractorCall,
        session: QuerySession,
        failed: CallFailed,
        deadline: float,
    ) -> int | None:
        """Return the row that fails alone in the same way.

        None if it cannot be found in time, or if the first that fails does so in another way: an extractor that looks at several
        rows may fail on one for want of the others.
        """
        if call.height == 1 or not self._is_naming:
            return 0 if call.height == 1 else None
        deadline = max(deadline, time.monotonic() + NAMING)
        for row in range(call.height):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                self._called(child, function, call.row(row), session, left)
            except CallFailed as alone:
                return row if _reason(alone) == _reason(failed) else None
        return None

    def _function(self, step: FunctionStep) -> _Function:
        with self._lock:
            found = self._functions.get(id(step))
            if found is not None:
                self._functions.move_to_end(id(step))
                return found
        payload = bytes(cloudpickle.dumps(IsolatedStep(step)))
        made = _Function(step, blake2b(payload, digest_size=16).hexdigest(), payload)
        with self._lock:
            found = self._functions.setdefault(id(step), made)
            while len(self._functions) > KNOWN:
                self._functions.popitem(last=False)
        return found

    @contextmanager
    def _child(self, function: _Function, seconds: float) -> Iterator[IsolatedProcess]:
        """Lend a child process for a call."""
        deadline = time.monotonic() + seconds
        with (
            _taken(function.slots, deadline, self._busy(function.step)),
            _taken(self._slots, deadline, self._busy(function.step)),
        ):
            child = self._lent(function.key)
            try:
                yield child
            finally:
                self._returned(child)

    def _busy(self, step: FunctionStep) -> Callable[[], ExtractorTimedOut]:
        return lambda: ExtractorTimedOut(
            f"{step.title} did not begin within {self._seconds:g} s: calls that came before have not ended",
            where=step.function.where or None,
            hint=f"mend the extractor if it hangs, or allow it more time: {SECONDS}",
        )

    def _lent(self, key: str) -> IsolatedProcess:
        known = self._idle_one(key)
        if known is not None:
            return known
        with self._lock:
            return self._idle.pop() if self._idle else IsolatedProcess(self._server, yields=True)

    def _idle_one(self, *keys: str) -> IsolatedProcess | None:
        """Take the idle child used last that knows some functions, if there is one."""
        with self._lock:
            known = next((each for each in reversed(self._idle) if each.knows(*keys)), None)
            if known is not None:
                self._idle.remove(known)
            return known

    def _returned(self, child: IsolatedProcess) -> None:
        with self._lock:
            if len(self._idle) < IDLE:
                self._idle.append(child)
                return
        child.close()


@contextmanager
def _taken(slots: threading.BoundedSemaphore, deadline: float, error: Callable[[], Exception]) -> Iterator[None]:
    if not slots.acquire(timeout=max(0.0, deadline - time.monotonic())):
        raise error()
    try:
        yield
    finally:
        slots.release()


def _reason(failed: CallFailed) -> tuple[object, ...]:
    """Return what two calls that fail in the same way have in common.

    It is the class of an exception, or what is wrong with a result, without its numbers.
    """
    if failed.error is None:
        return (failed.is_timeout,)
    cause, text = failed.error["cause"], failed.error["text"]
    return failed.error["kind"], cause, "" if cause else _NUMBER.sub("", text).partition(":")[0]


def _explained(step: FunctionStep, call: ExtractorCall, failed: CallFailed, row: int | None) -> ExtractorFailed:
    """Return the error of a call, with the row it failed on."""
    if row is not None:
        values = ", ".join(f"{name}={column[row]!r:.100}" for name, column in call.columns.items())
        location = f" (row {row} of {call.height}{f': {values}' if values else ''})"
    else:
        location = f" (one of {call.height} rows)"
    where = step.function.where or None
    if failed.error is not None:
        kind = ExtractorRefused if failed.error["is_value_error"] else ExtractorFailed
        text = failed.error["text"] if failed.error["is_own"] else f"{step.title} failed: {failed.reason}"
        return kind(f"{text}{location}", where=failed.error["where"] or where, hint=failed.error["hint"])
    if failed.is_timeout:
        hint = f"make it faster, give it fewer rows, or allow it more time: {SECONDS}"
        return ExtractorTimedOut(f"{step.title} has no result: {failed.reason}{location}", where=where, hint=hint)
    hint = f"mend the extractor: it must not end its process, nor take more memory than {MEMORY} allows"
    return ExtractorEnded(f"{step.title} has no result: {failed.reason}{location}", where=where, hint=hint)
