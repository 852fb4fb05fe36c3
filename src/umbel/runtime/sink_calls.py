"""Calls of writers of other packages, which may end the worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from umbel.connectors.call_mark import CallMark
from umbel.definitions.arguments import DataConnector
from umbel.plugins import is_own

FOLDER = "sinking"
"""The folder of a deployment with the marks."""


@dataclass(frozen=True)
class SinkCalls:
    """The calls of one sink's writer.

    Args:
        folder: of the marks.
        connector: of the sink.
    """

    folder: Path
    connector: DataConnector

    @contextmanager
    def calling(self, name: str) -> Iterator[None]:
        """Mark the calls in a block, unless the writer is one of umbel's.

        Args:
            name: of the kind of calls: those that succeed say nothing about others.

        Raises:
            Transient: the process has ended during such calls again and again; they rest.
        """
        if is_own(type(self.connector)):
            yield
            return
        mark = CallMark(self.folder / name, "written to")
        mark.check(self.connector.target)
        with mark.calling():
            yield
