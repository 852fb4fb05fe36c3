"""Coalescing of concurrent queries: requests for the same features run as one query.

A query costs mostly the same for one row as for fifty. So requests that arrived since the last answer and have the same plan are
answered as one query over the rows of all of them. No request waits for others to arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

import orjson
import polars as pl

from umbel.api.secrets import secrets_from
from umbel.catalog.vault import Vault
from umbel.query.arrange import QueryPlan
from umbel.query.encode import columns_from_json, rows_from_json
from umbel.query.execute import QueryEngine, instants
from umbel.query.session import QueryMode
from umbel.serving.service import NeedsHistory
from umbel.serving.threads import Threads

SMALL = 256
"""Rows of a query up to which it is answered on the event loop; larger queries are answered in a thread."""


@dataclass(frozen=True, slots=True)
class PendingQuery:
    """A query waiting for its answer.

    Args:
        engine: of the revision it was planned for.
        plan: its query plan.
        columns: JSON values, for each input of the plan.
        height: the number of rows.
        at: the instant of an as-of query, None for now.
    """

    engine: QueryEngine
    plan: QueryPlan
    columns: Mapping[str, list[Any]]
    height: int
    at: datetime | None

    @property
    def is_small(self) -> bool:
        """True if it may be answered on the event loop, coalesced with others."""
        return self.height <= SMALL and self.plan.is_rowwise


class Encoded(NamedTuple):
    """An answer as JSON.

    Args:
        content: an object of columns.
        dtypes: the result of `Answer.dtypes_json`.
        at: the instant that the answer is as of, None where each row has its own.
    """

    content: bytes
    dtypes: str = ""
    at: datetime | None = None


@dataclass(slots=True)
class _QueryGroup:
    questions: list[PendingQuery] = field(default_factory=list)
    futures: list[asyncio.Future[Encoded]] = field(default_factory=list)


class Coalescer:
    """Answers queries on one event loop, coalescing those that have the same plan.

    Args:
        vault: the secrets that user code may read.
        threads: the thread pools for large queries and for those that read history.
    """

    def __init__(self, vault: Vault, threads: Threads) -> None:
        self._vault, self._threads = vault, threads
        self._waiting: dict[int, _QueryGroup] = {}

    async def answer(self, question: PendingQuery) -> Encoded:
        """Return the answer to a query."""
        if not question.is_small:
            return (await self._threads.answering.do(self._answers, [question]))[0]
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._answer_all)
        group = self._waiting.setdefault(id(question.plan), _QueryGroup())
        future: asyncio.Future[Encoded] = loop.create_future()
        group.questions.append(question)
        group.futures.append(future)
        try:
            return await future
        except NeedsHistory:
            return (await self._threads.reading.do(self._answers, [question]))[0]

    def _answer_all(self) -> None:
        groups, self._waiting = self._waiting, {}
        for group in groups.values():
            start = 0
            while start < len(group.questions):
                stop = _some(group.questions, start)
                self._settle(group.questions[start:stop], group.futures[start:stop])
                start = stop

    def _settle(self, questions: list[PendingQuery], futures: list[asyncio.Future[Encoded]]) -> None:
        try:
            for future, found in zip(futures, self._answers(questions), strict=True):
                if not future.done():
                    future.set_result(found)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  whatever it is, a panic of Polars too, it belongs to one of them
            if len(questions) > 1:  # run each alone to find the one that fails
                for question, future in zip(questions, futures, strict=True):
                    self._settle([question], [future])
            elif not futures[0].done():
                futures[0].set_exception(error)

    def _answers(self, questions: list[PendingQuery]) -> list[Encoded]:
        """Return the answer to each query; all have the same plan."""
        engine, plan = questions[0].engine, questions[0].plan
        columns = rows_from_json(_together(questions), plan.inputs)
        now, heights = datetime.now(UTC), [each.height for each in questions]
        requested = [each.at or now for each in questions]
        at = instants(requested, heights)
        with secrets_from(self._vault):
            found = engine.run(plan, columns, at, QueryMode.ONLINE)
        return [
            Encoded(content, found.dtypes_json(), instant)
            for content, instant in zip(_apart(found.to_json(), heights), requested, strict=True)
        ]


def _together(questions: list[PendingQuery]) -> Mapping[str, list[Any]]:
    """Return the columns of the queries' rows, one query after the other."""
    if len(questions) == 1:
        return questions[0].columns
    return {name: list(chain.from_iterable(each.columns[name] for each in questions)) for name in questions[0].columns}


def _some(questions: list[PendingQuery], start: int) -> int:
    """Return the end of the slice of queries from `start` that run together."""
    rows = questions[start].height
    stop = start + 1
    while stop < len(questions) and rows + questions[stop].height <= SMALL:
        rows += questions[stop].height
        stop += 1
    return stop


def _apart(found: Mapping[str, list[Any]], heights: list[int]) -> list[bytes]:
    """Split an answer into the rows of each query, as JSON."""
    if len(heights) == 1:
        return [orjson.dumps(found)]
    answers, start = list[bytes](), 0
    for height in heights:
        stop = start + height
        answers.append(orjson.dumps({name: values[start:stop] for name, values in found.items()}))
        start = stop
    return answers


def offline(question: PendingQuery, column: str, at: pl.Series, vault: Vault) -> Encoded:
    """Answer a query with an instant per row; the instants become the last column."""
    columns = columns_from_json(question.columns, question.plan.inputs)
    with secrets_from(vault):
        found = question.engine.offline(question.plan, columns, at)
    stamps = [instant.isoformat().replace("+00:00", "Z") for instant in at]
    return Encoded(orjson.dumps({**found.to_json(), column: stamps}), found.dtypes_json())
