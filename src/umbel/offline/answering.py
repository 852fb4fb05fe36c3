"""Answering the rows of an offline query, by the engine that answers queries over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from umbel.api.secrets import secrets_from
from umbel.changes.change_filter import ChangeFilter
from umbel.errors import Terminal, Transient, UmbelError
from umbel.graph.graph import Branch, GraphNode
from umbel.offline.request import OfflineRequest
from umbel.query.answer import Answer
from umbel.query.arrange import QueryPlan
from umbel.query.execute import QueryEngine
from umbel.query.history import logged_inputs
from umbel.query.session import QueryMode
from umbel.runtime.completeness import DeploymentCompleteness
from umbel.runtime.deployment import Deployment, replaced
from umbel.runtime.engines import engine_of
from umbel.runtime.erasures import erased_on
from umbel.runtime.extractors import Extractors
from umbel.runtime.history import replayed
from umbel.types.dtypes import Datetime, DType

BATCH_SECONDS = 60.0
"""Seconds an extractor may take for many rows, besides some time for each; for one it may take what it may online."""
PROBED = 100
"""Rows to sample: if all of them fail, the error is the query's and not the rows'."""
HISTORY_BYTES = 512 << 20
"""Bytes of history that are cached for the next batch."""
ROW_BYTES = 64
"""About how many bytes a change takes in memory, if its texts are short."""


class Answering:
    """Answers rows of an offline query, following erasures while it runs.

    It stops if a dataset that the query looks up is replaced by a commit.

    Args:
        deployment: the deployment to query.
        branch: the branch to query.
        request: the query.
    """

    def __init__(self, deployment: Deployment, branch: str, request: OfflineRequest) -> None:
        self._deployment, self._branch, self._request = deployment, branch, request
        self._extractors = Extractors(batch_seconds=BATCH_SECONDS, is_naming=False)
        self._read: dict[str, pl.DataFrame] = {}
        self._large = set[str]()
        self._latest, self._engine = self._current()
        self.plan = self._engine.plan(request.inputs, request.outputs, QueryMode.OFFLINE)

    @property
    def types(self) -> dict[str, DType]:
        """The columns of an answer: the features, and the instants last."""
        return {**self.plan.outputs, self._request.timestamp: Datetime()}

    def follow(self) -> None:
        """Apply commits and erasures made since the last batch.

        Raises:
            Terminal: a dataset that is looked up was changed or removed.
        """
        if self._deployment.catalog.latest() != self._latest:
            self._latest, self._engine = self._current()

    def answers(
        self, columns: Mapping[str, pl.Series], at: pl.Series
    ) -> Iterator[tuple[int, int, Answer | UmbelError]]:
        """Yield answers to ranges of rows, or the error of a single row.

        A range that fails is halved until the failing rows are found.

        Args:
            columns: the inputs, by feature.
            at: the instant of each row.

        Raises:
            UmbelError: none of the sampled rows can be answered: the error is the query's.
        """
        waiting = [(0, len(at))]
        while waiting:
            start, stop = waiting.pop()
            found = self._answer(columns, at, start, stop)
            if isinstance(found, Answer) or stop - start == 1:
                yield start, stop, found
                continue
            if stop - start == len(at):
                self._check_readable(columns, at, found)
            middle = (start + stop) // 2
            waiting += [(middle, stop), (start, middle)]

    def _check_readable(self, columns: Mapping[str, pl.Series], at: pl.Series, error: UmbelError) -> None:
        """Raise the error if a sample of rows spread over the batch fails, too.

        Batches of at most `PROBED` rows are not sampled.
        """
        if len(at) <= PROBED:
            return
        rows = (len(at) * number // PROBED for number in range(PROBED))
        if not any(isinstance(self._answer(columns, at, row, row + 1), Answer) for row in rows):
            raise error

    def _answer(self, columns: Mapping[str, pl.Series], at: pl.Series, start: int, stop: int) -> Answer | UmbelError:
        size = stop - start
        provided = {name: column.slice(start, size) for name, column in columns.items()}
        when = at.slice(start, size)
        try:
            with secrets_from(self._deployment.vault):
                found = self._engine.offline(self.plan, provided, when)
        except Transient:
            raise
        except UmbelError as error:
            return error
        return Answer({**found.columns, self._request.timestamp: when}, self.types)

    def _current(self) -> tuple[int, QueryEngine]:
        latest = self._deployment.catalog.latest()
        whole, former = self._deployment.graph(latest), replaced(self._branch)
        graph = whole.branch(former if former in whole.names else self._branch)
        check_same(graph, self._request.state_ids, self._branch)
        erased = erased_on(self._deployment, self._branch, latest)
        definitions = self._deployment.definitions(self._request.revision)
        known, store = DeploymentCompleteness(self._deployment), self._deployment.store
        return latest, engine_of(definitions, graph, store, self._history, erased, self._extractors, known)

    def _history(self, node: GraphNode, changes: ChangeFilter) -> pl.DataFrame:
        """Return a node's input history, cached for the next batches if it is small.

        At most `HISTORY_BYTES` are cached. Of a larger one what these rows need is read.
        """
        known = self._read.get(node.state_id)
        if known is None and node.state_id not in self._large:
            rows = sum(self._deployment.changes.measure(each)[0] for each in logged_inputs(node))
            cached = sum(each.estimated_size() for each in self._read.values())
            if cached + rows * ROW_BYTES <= HISTORY_BYTES:
                known = replayed(self._deployment, node, changes.of_all_groups)
            if known is not None and cached + known.estimated_size() <= HISTORY_BYTES:
                self._read[node.state_id] = known
            else:
                self._large.add(node.state_id)
        return replayed(self._deployment, node, changes) if known is None else known


def looked_up(plan: QueryPlan, graph: Branch) -> dict[str, str]:
    """Return the state id of each dataset that a plan looks up."""
    names = {name for extractor in plan.extractors for name in extractor.datasets}
    return {name: graph.outputs[name].state_id for name in sorted(names) if name in graph.outputs}


def check_same(graph: Branch, state_ids: Mapping[str, str], branch: str) -> None:
    """Refuse a graph in which the query's datasets have another state id.

    Raises:
        Terminal: one was changed or removed by a commit.
    """
    for name, state_id in state_ids.items():
        node = graph.outputs.get(name)
        if node is None or node.state_id != state_id:
            raise Terminal(
                f"dataset '{name}' of branch '{branch}' was changed or removed while the query ran",
                hint="ask again, of what is committed now",
            )
