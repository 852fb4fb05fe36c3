"""Journal: a file of JSON lines that grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from umbel.connectors.splits import Found, Position, Split, SplitSource
from umbel.definitions.arguments import DataConnector, DataSource
from umbel.formats.json_lines import JsonLines, lines_of
from umbel.formats.raw_batch import RawBatch, TextRows
from umbel.types.dtype import DType


@dataclass(frozen=True, kw_only=True)
class JournalConnector(DataConnector):
    """One file.

    Args:
        path: of the file.
    """

    path: str

    def reader(self, directory: Path) -> JournalSource:
        return JournalSource(self.path)


@dataclass(frozen=True, kw_only=True)
class Journal(DataSource):
    """A folder of files that grow, one JSON object per line.

    Args:
        folder: its path.
    """

    folder: str

    def file(self, name: str) -> JournalConnector:
        """Return the connector for one file."""
        return JournalConnector(source=self, path=str(Path(self.folder, name)))


@dataclass(frozen=True)
class JournalSource(SplitSource):
    """The reading side: a position is the number of bytes read."""

    path: str

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        begin, path = position or 0, Path(self.path)
        data = path.read_bytes()[begin : begin + budget] if path.exists() else b""
        end = begin + data.rfind(b"\n") + 1
        return ([({"begin": begin, "end": end}, end - begin)] if end > begin else []), end

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        with Path(self.path).open("rb") as file:
            file.seek(split["begin"])
            data = file.read(split["end"] - split["begin"])
        text, first = TextRows(self.path, split["begin"], data, lines_of), 0
        for raw in JsonLines(requested, exact=exact).read(data):
            where, bytes_ = partial(_shifted, text.where, first), partial(_shifted, text.text, first)
            yield RawBatch(raw, split["begin"] + first, where, bytes_)
            first += raw.frame.height


def _shifted(function: Callable[[int], Any], first: int, row: int) -> Any:
    return function(first + row)
