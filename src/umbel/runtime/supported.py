"""Refuses definitions that a server does not support, at commit time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from umbel.definitions.records import DatasetDefinition, Definitions
from umbel.errors import ErrorCollector, NotSupported
from umbel.graph.graph import Graph, GraphNode


def check_supported(definitions: Definitions) -> None:
    """Refuse options that a server would ignore: some sinks.

    Raises:
        NotSupported: there are some; the message lists all of them.
    """
    errors = ErrorCollector("commit")
    errors.add(*_unsupported(definitions.datasets.values()))
    errors.check(f"{len(errors.found)} options are not supported by a server yet")


def _unsupported(datasets: Iterable[DatasetDefinition]) -> Iterator[NotSupported]:
    for each in datasets:
        for sink in each.sinks:
            try:
                sink.connector.check_writer()
            except NotSupported as error:
                yield NotSupported(
                    f"dataset '{each.name}' has a sink: {error.message}", where=sink.location, hint=error.hint
                )
            if each.output is not None and each.output.is_terminal:
                yield NotSupported(
                    f"dataset '{each.name}' has a sink, but no changes to send: its values depend on the instant of a query",
                    where=sink.location,
                    hint="a dataset before the aggregation can have a sink, and one with discrete windows or emit='final'",
                )


def check_final(definitions: Definitions) -> None:
    """Refuse emit='final' where results wait for a watermark that there never is.

    Raises:
        NotSupported: there is such an operator.
    """
    endless = dict[int, GraphNode]()  # by node: itself or one before it whose changes lag without bound
    for node in Graph(definitions.datasets.values()).nodes:  # parents first
        before = next((endless[parent.number] for parent in node.parents if parent.number in endless), None)
        if node.is_final and before is not None:
            raise NotSupported(
                f"{node.operator.title}: with emit='final' it would never have a result: {before.operator.subject} may "
                "retract rows of any age",
                hint="use emit='eager', or discrete windows without it",
            )
        if node.operator.delay is None:
            endless[node.number] = node
        elif before is not None:
            endless[node.number] = before
