"""Group commit: many waiting callers, one write and one sync."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from umbel.errors import Transient
from umbel.log.records import Entry, Receipt

MAX_WAITING_BYTES = 256 << 20
_GROUP_BYTES = 8 << 20

Outcome = Receipt | BaseException


Settle = Callable[[Outcome], None]
"""Takes the outcome of an entry."""


@dataclass(frozen=True, slots=True)
class _Waiter:
    entry: Entry
    settle: Settle
    loop: asyncio.AbstractEventLoop | None


class GroupCommit:
    """Pass submitted entries in groups to `write`, in a separate thread.

    Args:
        write: makes entries durable in order and returns a receipt for each.
        name: of the thread.
    """

    def __init__(self, write: Callable[[Sequence[Entry]], list[Receipt]], name: str) -> None:
        self._write, self._name = write, name
        self._wake = threading.Condition()
        self._waiting: list[_Waiter] = []
        self._waiting_bytes = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    async def submit(self, entry: Entry) -> Receipt:
        """Wait until the entry is durable."""
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.submit_to(entry, partial(_resolve, future))
        return await future

    def submit_to(self, entry: Entry, settle: Settle) -> None:
        """Have the running event loop call `settle` with the outcome.

        It costs less than a future for each entry.
        """
        self._enqueue(_Waiter(entry, settle, asyncio.get_running_loop()))

    def submit_blocking(self, entry: Entry) -> Future[Receipt]:
        """Return a future that is done when the entry is durable."""
        future: Future[Receipt] = Future()
        self._enqueue(_Waiter(entry, partial(_resolve, future), None))
        return future

    def _enqueue(self, waiter: _Waiter) -> None:
        with self._wake:
            if self._is_closed:
                raise Transient(f"{self._name} is closed")
            if self._waiting_bytes > MAX_WAITING_BYTES:
                raise Transient(f"{self._name} has more data waiting than the disk takes", hint="send again later")
            self._waiting.append(waiter)
            self._waiting_bytes += len(waiter.entry.payload)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            elif len(self._waiting) == 1:
                self._wake.notify()

    def _run(self) -> None:
        while group := self._next_group():
            outcomes: Sequence[Outcome]
            try:
                outcomes = self._write([waiter.entry for waiter in group])
            except BaseException as error:  # noqa: BLE001  whatever the error, no caller may wait forever
                outcomes = [error] * len(group)
            _settle(group, outcomes)

    def _next_group(self) -> list[_Waiter]:
        with self._wake:
            while not self._waiting and not self._is_closed:
                self._wake.wait()
            taken = size = 0
            for waiter in self._waiting:
                taken, size = taken + 1, size + len(waiter.entry.payload)
                if size >= _GROUP_BYTES:
                    break
            group, self._waiting = self._waiting[:taken], self._waiting[taken:]
            self._waiting_bytes -= size
            return group

    def close(self) -> None:
        """Write the waiting entries, then stop."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()


def _resolve(future: Future[Receipt] | asyncio.Future[Receipt], outcome: Outcome) -> None:
    if future.done():
        return  # the caller is gone, its record is stored
    if isinstance(outcome, Receipt):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)


def _settle(group: Sequence[_Waiter], outcomes: Sequence[Outcome]) -> None:
    # One call into each event loop, not one per caller: waking a loop costs more than everything else here.
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Waiter, Outcome]]] = {}
    for waiter, outcome in zip(group, outcomes, strict=True):
        if waiter.loop is None:
            waiter.settle(outcome)
        else:
            by_loop.setdefault(waiter.loop, []).append((waiter, outcome))
    for loop, answers in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle_here, answers)


def _settle_here(answers: Sequence[tuple[_Waiter, Outcome]]) -> None:
    for waiter, outcome in answers:
        try:
            waiter.settle(outcome)
        except Exception as error:  # noqa: BLE001  the others of the group get theirs
            report = {"message": "the caller of a group commit failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(report)
