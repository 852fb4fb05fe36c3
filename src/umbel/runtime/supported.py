"""Refuses definitions that a server does not support, at commit time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from umbel.definitions.records import HISTORY, DatasetDefinition, Definitions
from umbel.errors import ErrorCollector, NotSupported
from umbel.types.durations import format_duration


def check_supported(definitions: Definitions) -> None:
    """Refuse options that a server would ignore: sinks, and retention of history.

    Raises:
        NotSupported: there are some; the message lists all of them.
    """
    errors = ErrorCollector("commit")
    errors.add(*_unsupported(definitions.datasets.values()))
    errors.check(f"{len(errors.found)} options are not supported by a server yet")


def _unsupported(datasets: Iterable[DatasetDefinition]) -> Iterator[NotSupported]:
    for each in datasets:
        for sink in each.sinks:
            yield NotSupported(
                f"dataset '{each.name}' has a sink of kind '{sink.connector.kind}', and a server does not write to sinks yet",
                where=sink.location,
                hint='take @sink away, or let it be for another environment than is committed: @sink(..., env="...")',
            )
        if each.history != HISTORY:
            yield NotSupported(
                f"dataset '{each.name}': history={format_duration(each.history)!r} cannot be kept to: a server keeps the "
                "whole history of a dataset, and removes nothing by age yet",
                where=each.location,
                hint="leave history= out",
            )
