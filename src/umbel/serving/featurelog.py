"""Keeping what queries were answered, for those that ask for it: nobody waits for it to be written.

A query only puts its answer into a queue. A thread writes what is there a few times a second. What does not fit into the queue is
dropped and counted.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from umbel.log.features import FeatureLog, spelled
from umbel.plan.graph import MAIN
from umbel.query.encode import column_from_json
from umbel.serving.purpose import Purpose, workflow_of
from umbel.serving.requests import BRANCH_HEADER
from umbel.serving.service import Service
from umbel.types.dtypes import Datetime

LINES = "application/x-ndjson"
MOST_BYTES = 64 << 20
"""Bytes of rows that may wait."""
EVERY = 0.2
"""Seconds between two writes."""
PATIENCE = 10.0
"""Seconds the last write gets when the server stops."""

Counted = Callable[[str, str, int], None]
"""Notes, for a workflow, an outcome and how many rows had it."""

log = logging.getLogger("umbel.serve")


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer to keep.

    Args:
        branch: that was asked.
        purpose: what it was asked for, and which share of the rows is kept; which ones is left to chance.
        at: the instant it was asked about.
        inputs: the JSON object of columns that came.
        answer: the JSON object of columns that was answered.
        height: how many rows.
    """

    branch: str
    purpose: Purpose
    at: datetime
    inputs: bytes
    answer: bytes
    height: int


class Keeper:
    """Writes answers to the feature log, in a thread of its own.

    Args:
        kept: the feature log.
        counted: told what came of the rows: `kept`, `dropped` for want of room, `failed` to be written.
    """

    def __init__(self, kept: FeatureLog, counted: Counted) -> None:
        self.log, self._counted = kept, counted
        self._waiting = deque[Answered]()
        self._bytes = self._taken = self._done = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def keep(self, answered: Answered) -> None:
        """Take an answer to be written soon, if there is room for it."""
        size = len(answered.inputs) + len(answered.answer)
        with self._changed:
            if self._bytes + size > MOST_BYTES:
                self._counted(answered.purpose.workflow, "dropped", answered.height)
                return
            self._waiting.append(answered)
            self._bytes += size
            self._taken += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="feature-log", daemon=True)
                self._thread.start()
            elif len(self._waiting) == 1:
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait until everything taken so far is written."""
        with self._changed:
            wanted = self._taken
            self._changed.wait_for(lambda: self._done >= wanted or self._is_closed, PATIENCE)

    def close(self) -> None:
        """Write what is waiting, and take nothing more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                self._changed.wait_for(lambda: self._is_closed, EVERY)  # others may come
                taken, self._waiting, self._bytes = self._waiting, deque(), 0
            try:
                self._write(taken)
            except Exception:  # what comes next is to be written all the same
                log.exception("rows for the feature log are lost")
            with self._changed:
                self._done += len(taken)
                self._changed.notify_all()

    def _write(self, taken: deque[Answered]) -> None:
        lines = defaultdict[tuple[str, str, str], list[bytes]](list)
        for each in taken:
            lines[each.branch, each.purpose.workflow, spelled(each.at)[:10]] += _lines(each)
        for (branch, workflow, day), found in lines.items():
            if found:
                self._counted(workflow, self._appended(branch, workflow, day, found), len(found))

    def _appended(self, branch: str, workflow: str, day: str, lines: list[bytes]) -> str:
        try:
            self.log.append(branch, workflow, day, lines)
        except OSError as error:
            log.error("the feature log cannot be written: %s", error)
            return "failed"
        return "kept"


def _lines(answered: Answered) -> Iterator[bytes]:
    """Yield the lines of the rows that chance chooses."""
    columns = {**orjson.loads(answered.inputs), **orjson.loads(answered.answer)}
    told = {"timestamp": spelled(answered.at), "workflow": answered.purpose.workflow}
    for row in zip(*columns.values(), strict=True):
        if random.random() < answered.purpose.rate:
            yield orjson.dumps({**told, **dict(zip(columns, row, strict=True))}, option=orjson.OPT_APPEND_NEWLINE)


async def feature_log(request: Request) -> Response:
    """Answer what was kept of a workflow, or of all, between two instants: an object per line."""
    service: Service = request.app.state.service
    keeper: Keeper = request.app.state.keeper
    await service.of(request)  # says which branches there are
    branch = request.headers.get(BRANCH_HEADER, MAIN)
    stated = request.query_params.get("workflow")
    workflow = None if stated is None else workflow_of(stated)
    since, until = (_instant(request, name) for name in ("since", "until"))
    await service.threads.reading.do(keeper.flush)
    return StreamingResponse(keeper.log.read(branch, workflow, since, until), media_type=LINES)


def _instant(request: Request, name: str) -> datetime | None:
    stated = request.query_params.get(name)
    if stated is None:
        return None
    found = column_from_json([stated], Datetime(), name, name)[0]
    assert isinstance(found, datetime)
    return found
