"""The guard of a worker: rejects single rows that user functions fail on.

A function normally runs in the worker, marked and timed. If it raises, its rows are bisected down to the rows it raises for. A
function that was running when its process ended is a suspect: it runs in a child process, within limits, and the rows that end
the child are found, recorded permanently, and left out: in this run, in each repetition, and in each backfill.
`docs/decisions/0015-user-functions-that-fail.md` gives the reasons.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import numpy as np
import orjson
import polars as pl

from umbel.catalog.verdicts import Known, Verdicts
from umbel.errors import Transient
from umbel.formats.raw_batch import RawBatch
from umbel.functions.computed import ByFunction, Columns
from umbel.isolation.child import report
from umbel.isolation.function_limits import FunctionLimits
from umbel.isolation.process import CallFailed, ForkServer, IsolatedProcess
from umbel.operators.operator import RowWise
from umbel.runtime.deployment import Deployment
from umbel.runtime.in_flight import InFlight
from umbel.runtime.isolated import MODULES, Judgement, Rows
from umbel.runtime.reporting import report_event
from umbel.runtime.user_code import Judging, Work, applying
from umbel.types.dtype import scatter_rows
from umbel.types.dtypes import Checked, DType
from umbel.types.schema import AT, CHANGE_COLUMNS, SEQ, WEIGHT

PARTS = 16
"""Rows that fail together are divided into this many parts and tried again."""
SINGLY = 1024
"""So many rows are tried one by one instead, when a call for all of them costs a process."""
CLEAN = 100
"""A suspect that has run so often without a failure runs in the worker again."""
LETTERS = 10_000
"""Rejected rows that a guard describes; further ones are only counted."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class Rejected:
    """A row that a pipeline's function could not process.

    Args:
        operator: the operator's id.
        title: the pipeline and the operator or function.
        reason: the error.
        raw: the row, as JSON.
        number: orders the row among those of its source.
        where: its position in the source, or a description that identifies it.
    """

    operator: str
    title: str
    reason: str
    raw: bytes
    number: int
    where: str
    is_placed: bool = False


@dataclass(slots=True)
class _Search(Generic[T]):
    """The search for the rows that user code fails on.

    Args:
        rejected: row number to the reason.
        final: the rows among them that must be recorded, because another run may not fail on them.
        parts: the results of the others, in order.
        wasted: seconds that went into processes that were lost, for single rows and where no row was found.
    """

    rejected: dict[int, str] = field(default_factory=dict)
    final: set[int] = field(default_factory=set)
    parts: list[T] = field(default_factory=list)
    wasted: float = 0.0


class WorkerGuard:
    """The guard of one batch, or of one task of it.

    Args:
        deployment: the deployment.
        limits: of the functions.
        is_marked: whether calls in this process are marked and timed; only for processes that may be restarted at any time.
        has_thread: True to call functions in a thread of their own, the same in all batches: what a function retains, such as a
            connection of SQLite or an event loop, may be of use in the thread that made it alone.
    """

    def __init__(
        self,
        deployment: Deployment,
        limits: FunctionLimits | None = None,
        *,
        is_marked: bool = True,
        has_thread: bool = False,
    ) -> None:
        self._deployment = deployment
        self._limits = limits or FunctionLimits.from_environment()
        self._is_marked, self._has_thread = is_marked, has_thread
        self._process = _process_of(deployment, os.getpid())
        self.rejected: list[Rejected] = []
        self.counts: Counter[str] = Counter()

    def apply(self, operator: RowWise, rows: pl.DataFrame) -> pl.DataFrame:
        """Apply an operator to rows; rows it fails on are recorded as rejected."""
        if rows.is_empty():
            return operator.applied(rows)
        work = applying(operator)

        def act() -> pl.DataFrame:
            made, rejected = self._run(work, rows)
            if rejected:
                self._note(operator, work, rows, rejected)
            return made

        return self._alone(work, act)

    def judge(self, computed: ByFunction, rows: pl.DataFrame, columns: Columns, declared: DType) -> Checked:
        """Return one value per row, and the errors of rows without one."""
        work = Judging(Judgement(computed, dict(columns), declared))
        made, rejected = self._alone(work, partial(self._run, work, rows))
        if not rejected:
            return Checked(made.values.alias("value"), made.errors)
        good = np.setdiff1d(np.arange(rows.height), np.fromiter(rejected, np.int64))
        errors = {int(good[row]): why for row, why in made.errors.items()}
        return Checked(scatter_rows(made.values, good, rows.height).alias("value"), {**errors, **rejected})

    def location(self, since: int, batch: RawBatch) -> None:
        """Set the source positions of rows of a batch rejected since the first `since`."""
        for each in self.rejected[since:]:
            if not each.is_placed and (row := batch.row(each.number)) >= 0:
                each.where, each.is_placed = batch.where(row), True

    @cached_property
    def _known(self) -> Known:
        return self._process.known()

    def _alone(self, work: Work[Any], act: Callable[[], R]) -> R:
        """Return the result of a call.

        One user function runs at a time, because marks and limits are those of the process.
        """
        if not work.has_functions:
            return act()
        if self._has_thread:
            return self._process.in_thread(act)
        with self._process.calling:
            return act()

    # ---- calls ----------------------------------------------------------------------------------------------------------

    def _run(self, work: Work[T], rows: pl.DataFrame) -> tuple[T, dict[int, str]]:
        """Return the result of the rows that succeed, and reasons for the others."""
        known = self._recorded(work, rows)
        left = _without(rows, known)
        if left is not rows and left.is_empty():
            return work.joined([]), known
        try:
            return self._call(work, left), known
        except CallFailed as failed:
            search = _Search[T]()
            self._search(work, left, 0, search, failed)
        if search.final:
            hashes = row_hashes(left[sorted(search.final)])
            reasons = (search.rejected[row] for row in sorted(search.final))
            self._process.verdicts.reject(work.key, dict(zip(hashes, reasons, strict=True)))
            self.__dict__.pop("_known", None)
        numbers = np.setdiff1d(np.arange(rows.height), np.fromiter(known, np.int64))
        rejected = {**known, **{int(numbers[row]): why for row, why in search.rejected.items()}}
        return self._rest(work, _without(left, search.rejected), search), rejected

    def _rest(self, work: Work[T], rows: pl.DataFrame, search: _Search[T]) -> T:
        """Process the rows that do not fail in one call.

        A repetition that knows the failing rows computes the same.
        """
        if not rows.is_empty():
            try:
                return self._call(work, rows)
            except CallFailed:  # the code depends on several rows at once: the results of the parts have to do
                pass
        return work.joined(search.parts)

    def _search(self, work: Work[T], rows: pl.DataFrame, start: int, search: _Search[T], failed: CallFailed) -> None:
        """Divide rows that fail together until each that fails alone is found."""
        if rows.height == 1:
            search.rejected[start] = failed.reason
            if failed.error is None:
                search.final.add(start)
            return
        singly = failed.error is None and rows.height <= SINGLY
        size = 1 if singly else -(-rows.height // PARTS)
        for begin in range(0, rows.height, size):
            part = rows.slice(begin, size)
            if search.wasted > self._limits.batch_seconds:
                _give_up(search, range(start + begin, start + begin + part.height), failed)
                continue
            begun = time.monotonic()
            try:
                search.parts.append(self._call(work, part))
            except CallFailed as again:
                lost, found = time.monotonic() - begun if again.error is None else 0.0, len(search.rejected)
                self._search(work, part, start + begin, search, again)
                # A call that led to a row is not counted: one row that hangs would use up the time of all others.
                if part.height == 1 or len(search.rejected) == found:
                    search.wasted += lost

    def _call(self, work: Work[T], rows: pl.DataFrame) -> T:
        if not work.has_functions:
            return _raising(work, rows)
        if work.key in self._known.suspects:
            return self._apart(work, rows)
        if not self._is_marked:
            try:
                return _raising(work, rows)
            except KeyboardInterrupt:
                return self._apart(work, rows)
        seconds, memory = self._limits.seconds_of_batch(rows.height), self._limits.bytes(int(rows.estimated_size()))
        with self._process.inflight.calling(work.key, work.title, seconds, memory):
            try:
                return _raising(work, rows)
            except MemoryError:
                self._process.suspect(work.key, work.title, "took too much memory")
            except KeyboardInterrupt:  # a child ignores Ctrl-C: what it raises is of the function
                self._process.suspect(work.key, work.title, "raised KeyboardInterrupt")
        del self.__dict__["_known"]
        return self._apart(work, rows)

    def _apart(self, work: Work[T], rows: pl.DataFrame) -> T:
        seconds, memory = self._limits.seconds(rows.height), self._limits.bytes(int(rows.estimated_size()))
        result = self._process.call(work, rows, seconds, memory)
        return work.arrived(result)

    # ---- rows -----------------------------------------------------------------------------------------------------------

    def _recorded(self, work: Work[T], rows: pl.DataFrame) -> dict[int, str]:
        """Return the rows that are recorded as failing, with the reasons."""
        if not work.has_functions or work.key not in self._known.verdicts:
            return {}
        verdicts = self._process.rows(work.key, self._known.verdicts[work.key])
        found = ((row, verdicts.get(each)) for row, each in enumerate(row_hashes(rows)))
        return {row: reason for row, reason in found if reason is not None}

    def _note(self, operator: RowWise, work: Work[Any], rows: pl.DataFrame, rejected: Mapping[int, str]) -> None:
        """Record rejected rows; retractions of rejected rows are dropped and not counted."""
        numbers = [row for row in sorted(rejected) if rows[WEIGHT][row] > 0]
        with self._process.calling:
            self.counts[operator.id] += len(numbers)
            described = numbers[: max(0, LETTERS - len(self.rejected))]
            self._describe(operator, work, rows, {row: rejected[row] for row in described})

    def _describe(self, operator: RowWise, work: Work[Any], rows: pl.DataFrame, rejected: Mapping[int, str]) -> None:
        for row, reason in rejected.items():
            values = rows.row(row, named=True)
            at, number = values[AT], values[SEQ]
            plain = {name: value for name, value in values.items() if name not in CHANGE_COLUMNS}
            raw = orjson.dumps(plain, default=str, option=orjson.OPT_NON_STR_KEYS)
            where = f"row {_hash(values)[:16]}, {at.isoformat()}, number {number}"
            self.rejected.append(Rejected(operator.id, work.title, reason, raw, number, where))


class _Process:
    """The guard's state in a process, retained between batches.

    Args:
        deployment: the deployment.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self.verdicts = Verdicts(deployment.catalog)
        self.inflight = InFlight(deployment.directory)
        self.calling = threading.RLock()
        self._thread, self._caller = ThreadPoolExecutor(1, thread_name_prefix="user-functions"), 0
        self._rows: dict[str, tuple[int, dict[str, str]]] = {}
        self._child = IsolatedProcess(ForkServer(MODULES))
        self._clean: Counter[str] = Counter()

    def in_thread(self, act: Callable[[], R]) -> R:
        """Return the result of a call in the one thread of user functions."""

        def alone() -> R:
            self._caller = threading.get_ident()
            with self.calling:
                return act()

        if self._caller == threading.get_ident():
            return act()
        return self._thread.submit(copy_context().run, alone).result()

    def known(self) -> Known:
        """Return the verdicts on functions, after adding new suspects.

        Functions that were running in processes which have ended become suspects.
        """
        for function, title in self.inflight.left_behind():
            self.suspect(function, title, "was running when its process ended")
        return self.verdicts.known()

    def suspect(self, function: str, title: str, why: str) -> None:
        """Record a function that must run in a process of its own."""
        self.verdicts.suspect([function])
        text = f"{title} {why}: it runs in a process of its own from now on"
        report_event(self._deployment.catalog, text)

    def rows(self, function: str, count: int) -> dict[str, str]:
        """Return the hashes of the `count` rows a function fails on, cached."""
        known = self._rows.get(function)
        if known is None or known[0] != count:
            known = self._rows[function] = (count, self.verdicts.rows(function))
        return known[1]

    def call(self, work: Work[Any], rows: pl.DataFrame, seconds: float, memory: int) -> Any:
        """Process rows in a child."""
        try:
            found = self._child.call(
                work.key,
                work.payload,
                Rows.of(rows),
                seconds=seconds,
                memory=memory,
                answers=self._deployment.vault.get,
                is_repeated=rows.height == 1,
            )
        except CallFailed as failed:
            if failed.error is None:
                self._clean[work.key] = 0
            raise
        self._clean[work.key] += 1
        if self._clean[work.key] == CLEAN:
            self.verdicts.trust(work.key)
        return found


@lru_cache(maxsize=4)
def _process_of(deployment: Deployment, process: int) -> _Process:
    """Return the guard's state of this process; a fork of it has its own."""
    return _Process(deployment)


def _raising(work: Work[T], rows: pl.DataFrame) -> T:
    """Process rows in this process; any exception of user code becomes `CallFailed`."""
    process = os.getpid()
    try:
        return work.here(rows)
    except (MemoryError, Transient, KeyboardInterrupt):
        raise
    except BaseException as error:  # user code raises anything, Polars panics
        found = report(error)
        where = f" (at {found['where']})" if found["where"] else ""
        raise CallFailed(f"{_said(found)}{where}", found) from error
    finally:
        if os.getpid() != process:  # a fork that a function left behind would be a second worker
            os._exit(0)


def _said(found: Mapping[str, Any]) -> str:
    return str(found["text"]) if found["is_own"] else f"{found['kind']}: {found['text']}"


def _give_up(search: _Search[Any], rows: range, failed: CallFailed) -> None:
    for row in rows:
        search.rejected[row] = f"not tried: too many rows before it had failed, the last because {failed.reason}"
        search.final.add(row)


def _without(rows: pl.DataFrame, rejected: Mapping[int, str]) -> pl.DataFrame:
    if not rejected:
        return rows
    return rows[np.setdiff1d(np.arange(rows.height), np.fromiter(rejected, np.int64))]


def row_hashes(rows: pl.DataFrame) -> list[str]:
    """Return a hash of each row's values, the same in every process and run."""
    return [_hash(row) for row in rows.iter_rows(named=True)]


def _hash(row: Mapping[str, Any]) -> str:
    values = sorted((name, value) for name, value in row.items() if value is not None and name not in CHANGE_COLUMNS)
    return blake2b(repr(values).encode(errors="surrogatepass"), digest_size=16).hexdigest()
