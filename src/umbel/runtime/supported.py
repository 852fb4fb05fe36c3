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
    for node in Graph(definitions.datasets.values()).nodes:
        endless = next(_without_watermark(node), None) if node.is_final else None
        if endless is not None:
            raise NotSupported(
                f"{node.operator.title}: with emit='final' it would never have a result: {endless.operator.subject} may "
                "retract rows of any age",
                hint="use emit='eager', or discrete windows without it",
            )


def _without_watermark(node: GraphNode) -> Iterator[GraphNode]:
    """Yield the nodes before one with changes that lag behind the watermark without bound."""
    for parent in node.parents:
        if parent.operator.delay is None:
            yield parent
        yield from _without_watermark(parent)
