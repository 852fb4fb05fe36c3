"""Answering queries that wait at the same time together.

What a query costs is mostly the same for one row as for fifty. So requests that have arrived since the last answer, and ask
for the same features, are answered as one query whose rows are all of theirs. Nobody waits for others to come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

import orjson
import polars as pl

from umbel.api.secrets import kept_by
from umbel.catalog.vault import Vault
from umbel.query.arrange import Plan
from umbel.query.encode import columns_from_json, few_from_json
from umbel.query.execute import QueryEngine, instants
from umbel.query.session import Mode
from umbel.serving.service import NeedsHistory
from umbel.serving.threads import Threads

SMALL = 256
"""Rows that are answered on the event loop, whoever asks for them; larger queries are answered in a thread."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query as it came.

    Args:
        engine: of the revision it was planned for.
        plan: how it is answered.
        columns: JSON values, for each input of the plan.
        height: how many rows.
        at: the instant asked about, None for now.
    """

    engine: QueryEngine
    plan: Plan
    columns: Mapping[str, list[Any]]
    height: int
    at: datetime | None

    @property
    def is_small(self) -> bool:
        """Whether it may be answered on the event loop, together with others."""
        return self.height <= SMALL and all(step.is_rowwise for step in self.plan.steps)


@dataclass(slots=True)
class _Group:
    questions: list[Question] = field(default_factory=list)
    futures: list[asyncio.Future[bytes]] = field(default_factory=list)


class Coalescer:
    """Answers questions, on one event loop.

    Args:
        vault: the secrets user code may ask for.
        threads: where those are answered that take long.
    """

    def __init__(self, vault: Vault, threads: Threads) -> None:
        self._vault, self._threads = vault, threads
        self._waiting: dict[int, _Group] = {}

    async def answer(self, question: Question) -> bytes:
        """Return the answer as a JSON object of columns."""
        if not question.is_small:
            return (await self._threads.answering.do(self._answers, [question]))[0]
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._answer_all)
        group = self._waiting.setdefault(id(question.plan), _Group())
        future: asyncio.Future[bytes] = loop.create_future()
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

    def _settle(self, questions: list[Question], futures: list[asyncio.Future[bytes]]) -> None:
        try:
            for future, found in zip(futures, self._answers(questions), strict=True):
                if not future.done():
                    future.set_result(found)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  whatever it is, a panic of Polars too, it belongs to one of them
            if len(questions) > 1:  # which of them is at fault?
                for question, future in zip(questions, futures, strict=True):
                    self._settle([question], [future])
            elif not futures[0].done():
                futures[0].set_exception(error)

    def _answers(self, questions: list[Question]) -> list[bytes]:
        """Return the answer to each question; all have the same plan."""
        engine, plan = questions[0].engine, questions[0].plan
        together = {name: list(chain.from_iterable(each.columns[name] for each in questions)) for name in plan.inputs}
        columns = few_from_json(together, plan.inputs)
        at = instants([each.at for each in questions], [each.height for each in questions])
        with kept_by(self._vault):
            found = engine.run(plan, columns, at, Mode.ONLINE).to_json()
        return _apart(found, [each.height for each in questions])


def _some(questions: list[Question], start: int) -> int:
    """Return how far questions can be answered together from `start` on."""
    rows = questions[start].height
    stop = start + 1
    while stop < len(questions) and rows + questions[stop].height <= SMALL:
        rows += questions[stop].height
        stop += 1
    return stop


def _apart(found: Mapping[str, list[Any]], heights: list[int]) -> list[bytes]:
    """Return the rows of each question as JSON."""
    if len(heights) == 1:
        return [orjson.dumps(found)]
    answers, start = list[bytes](), 0
    for height in heights:
        stop = start + height
        answers.append(orjson.dumps({name: values[start:stop] for name, values in found.items()}))
        start = stop
    return answers


def offline(question: Question, column: str, at: pl.Series, vault: Vault) -> bytes:
    """Return the answer to a question whose rows each have an instant of their own, with these as last column."""
    columns = columns_from_json(question.columns, question.plan.inputs)
    with kept_by(vault):
        found = question.engine.offline(question.plan, columns, at).to_json()
    stamps = [instant.isoformat().replace("+00:00", "Z") for instant in at]
    return orjson.dumps({**found, column: stamps})
