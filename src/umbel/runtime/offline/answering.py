"""Answering the rows of an offline query, by the engine that answers queries over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from umbel.api.secrets import kept_by
from umbel.errors import Terminal, Transient, UmbelError
from umbel.plan.graph import Branch, Node
from umbel.query.answer import Answer
from umbel.query.arrange import Plan
from umbel.query.execute import QueryEngine
from umbel.query.history import replay
from umbel.query.session import Mode
from umbel.runtime.deployment import Deployment
from umbel.runtime.engines import engine_of
from umbel.runtime.erasures import erased_on
from umbel.runtime.offline.asked import Asked
from umbel.types.dtypes import Datetime, DType

PROBED = 100
"""Rows, of more, that must all be without an answer for the fault to count as the query's and not the rows'."""
HISTORY_BYTES = 512 << 20
"""Bytes of history that are kept for the next batch."""


class Answering:
    """Answers rows; keeps up with erasures, and refuses to go on once other definitions answer for a dataset.

    Args:
        deployment: where.
        branch: whose features.
        asked: the query.
    """

    def __init__(self, deployment: Deployment, branch: str, asked: Asked) -> None:
        self._deployment, self._branch, self._asked = deployment, branch, asked
        self._read: dict[str, pl.DataFrame] = {}
        self._latest, self._engine = self._current()
        self.plan = self._engine.plan(asked.inputs, asked.outputs, Mode.OFFLINE)

    @property
    def types(self) -> dict[str, DType]:
        """The columns of an answer: the features, and the instants last."""
        return {**self.plan.outputs, self._asked.timestamp: Datetime()}

    def follow(self) -> None:
        """Keep up with what was committed or erased meanwhile.

        Raises:
            Terminal: a dataset that is looked up is no longer what it was.
        """
        if self._deployment.catalog.latest() != self._latest:
            self._latest, self._engine = self._current()

    def answers(
        self, columns: Mapping[str, pl.Series], at: pl.Series
    ) -> Iterator[tuple[int, int, Answer | UmbelError]]:
        """Yield the answers to ranges of rows; of a row that alone has none, the error.

        Args:
            columns: the inputs, by feature.
            at: the instant of each row.

        Raises:
            UmbelError: no row can be answered, as far as one can tell: the query is at fault.
        """
        waiting = [(0, len(at))]
        while waiting:
            start, stop = waiting.pop()
            found = self._answer(columns, at, start, stop)
            if isinstance(found, Answer) or stop - start == 1:
                yield start, stop, found
                continue
            if stop - start == len(at):
                self._probe(columns, at, found)
            middle = (start + stop) // 2
            waiting += [(middle, stop), (start, middle)]

    def _probe(self, columns: Mapping[str, pl.Series], at: pl.Series, error: UmbelError) -> None:
        """Raise what is wrong with many rows if none of some that lie all over them has an answer."""
        if len(at) <= PROBED:
            return
        rows = (len(at) * number // PROBED for number in range(PROBED))
        if not any(isinstance(self._answer(columns, at, row, row + 1), Answer) for row in rows):
            raise error

    def _answer(self, columns: Mapping[str, pl.Series], at: pl.Series, start: int, stop: int) -> Answer | UmbelError:
        size = stop - start
        given = {name: column.slice(start, size) for name, column in columns.items()}
        when = at.slice(start, size)
        try:
            with kept_by(self._deployment.vault):
                found = self._engine.offline(self.plan, given, when)
        except Transient:
            raise
        except UmbelError as error:
            return error
        return Answer({**found.columns, self._asked.timestamp: when}, self.types)

    def _current(self) -> tuple[int, QueryEngine]:
        latest = self._deployment.catalog.latest()
        graph = self._deployment.graph(latest).branch(self._branch)
        check_same(graph, self._asked.owners, self._branch)
        erased = erased_on(self._deployment, self._branch, latest)
        definitions = self._deployment.definitions(self._asked.revision)
        return latest, engine_of(definitions, graph, self._deployment.store, self._history, erased)

    def _history(self, node: Node) -> pl.DataFrame:
        """Return what a node has consumed, kept for the batches to come while that is not much."""
        known = self._read.get(node.owner)
        if known is None:
            known = replay(node, self._deployment.changes.read)
            if sum(each.estimated_size() for each in (known, *self._read.values())) <= HISTORY_BYTES:
                self._read[node.owner] = known
        return known


def looked_up(plan: Plan, graph: Branch) -> dict[str, str]:
    """Return which operator answers for each dataset that a plan looks up."""
    names = {name for extractor in plan.extractors for name in extractor.datasets}
    return {name: graph.outputs[name].owner for name in sorted(names) if name in graph.outputs}


def check_same(graph: Branch, owners: Mapping[str, str], branch: str) -> None:
    """Refuse a graph in which datasets are not what they were.

    Raises:
        Terminal: one was committed anew, or is gone.
    """
    for name, owner in owners.items():
        node = graph.outputs.get(name)
        if node is None or node.owner != owner:
            raise Terminal(
                f"dataset '{name}' of branch '{branch}' was changed or removed while the query ran",
                hint="ask again, of what is committed now",
            )
