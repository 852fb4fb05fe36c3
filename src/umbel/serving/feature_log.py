"""The feature log: answers of queries with `log`, written in the background.

A query only appends its answer to a queue. A thread writes the queue's content several times a second. Answers that do not
fit into the queue are dropped and counted.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import unquote

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from umbel.log.features import DamagedLine, FeatureLog, spelled
from umbel.query.encode import column_from_json
from umbel.serving.headers import branch_of
from umbel.serving.purpose import Purpose, workflow_of
from umbel.serving.requests import LINES, Parameters
from umbel.serving.service import Service
from umbel.types.dtypes import Datetime

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
    """An answer to log.

    Args:
        branch: of the query.
        purpose: the workflow, and the share of rows to log; the rows are sampled at random.
        at: the instant the query was as of.
        inputs: the JSON object of input columns.
        answer: the JSON object of answer columns.
        height: the number of rows.
    """

    branch: str
    purpose: Purpose
    at: datetime
    inputs: bytes
    answer: bytes
    height: int


class FeatureLogWriter:
    """Writes answers to the feature log, in a thread of its own.

    Args:
        retained: the feature log.
        counted: called with the outcome of rows: `kept`, `dropped` if the queue was full, `failed` to be written.
    """

    def __init__(self, retained: FeatureLog, counted: Counted) -> None:
        self.log, self._counted = retained, counted
        self._waiting = deque[Answered]()
        self._bytes = self._taken = self._done = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def keep(self, answered: Answered) -> None:
        """Queue an answer to be written; drop it if the queue is full."""
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

    def damaged(self, damage: DamagedLine) -> None:
        """Count and report an unreadable line and its location."""
        log.error("%s", damage)
        self._counted(unquote(damage.path.parent.parent.name), "damaged", 1)

    def flush(self) -> None:
        """Wait until all queued answers are written."""
        with self._changed:
            requested = self._taken
            self._changed.wait_for(lambda: self._done >= requested or self._is_closed, PATIENCE)

    def close(self) -> None:
        """Write the queue's content, and accept nothing more."""
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
            except Exception:  # later answers are to be written all the same
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
    """Yield the lines of the sampled rows."""
    columns = {**orjson.loads(answered.inputs), **orjson.loads(answered.answer)}
    header = {"timestamp": spelled(answered.at), "workflow": answered.purpose.workflow}
    for row in zip(*columns.values(), strict=True):
        if random.random() < answered.purpose.rate:
            yield orjson.dumps({**header, **dict(zip(columns, row, strict=True))}, option=orjson.OPT_APPEND_NEWLINE)


class FeatureLogParameters(Parameters, frozen=True):
    """The workflow, and the instants between which the rows were answered."""

    workflow: str | None = None
    since: str | None = None
    until: str | None = None


async def feature_log(request: Request, parameters: FeatureLogParameters) -> Annotated[Response, LINES]:
    """Return the logged rows of one or all workflows between two instants, as NDJSON."""
    service: Service = request.app.state.service
    feature_log_writer: FeatureLogWriter = request.app.state.feature_log_writer
    await service.of(request)  # says which branches there are
    branch = branch_of(request)
    workflow = None if parameters.workflow is None else workflow_of(parameters.workflow)
    since, until = _instant(parameters.since, "since"), _instant(parameters.until, "until")
    await service.threads.reading.do(feature_log_writer.flush)
    return StreamingResponse(
        feature_log_writer.log.read(branch, workflow, since, until, feature_log_writer.damaged), media_type=LINES
    )


def _instant(declared: str | None, name: str) -> datetime | None:
    if declared is None:
        return None
    found = column_from_json([declared], Datetime(), name, name)[0]
    assert isinstance(found, datetime)
    return found
