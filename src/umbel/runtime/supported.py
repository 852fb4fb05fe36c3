"""Refuses definitions that a server does not support, at commit time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from umbel.definitions.records import DatasetDefinition, Definitions
from umbel.errors import ErrorCollector, NotSupported


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
