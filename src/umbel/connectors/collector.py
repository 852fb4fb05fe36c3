"""Events stored by `umbel collect`, read from its folder."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar

from umbel.connectors.splits import Found, Position, Split, SplitSource
from umbel.connectors.webhook import EndpointSource, Webhook
from umbel.definitions.arguments import DataConnector, DataSource, ReadOptions
from umbel.errors import InvalidValue
from umbel.formats.raw_batch import RawBatch
from umbel.log.collected import SYSTEM, check_name, log_of
from umbel.log.readers import note_position, positions
from umbel.log.segments import ORIGIN, LogPosition
from umbel.state import disk
from umbel.types.dtype import DType

NOTE_EVERY = 1.0
"""Seconds between two notes of a reader's position."""


@dataclass(frozen=True, kw_only=True)
class CollectorStream(DataConnector):
    """One stream of a collector."""

    stream: str

    is_stream: ClassVar[bool] = True
    placed_by: ClassVar[tuple[str, ...]] = ("stream",)

    @property
    def folder(self) -> Path:
        """The folder of the collector."""
        assert isinstance(self.source, Collector)
        return Path(self.source.folder)

    @property
    def title(self) -> str:
        return f"{super().title}, stream '{self.stream}'"

    @property
    def nests(self) -> bool:
        return True

    def reader_of(self, options: ReadOptions) -> SplitSource:
        return StreamSource(self, options.directory, options.key)


@dataclass(frozen=True, kw_only=True)
class Collector(DataSource):
    """Events stored by `umbel collect --dir FOLDER`, each read exactly once.

    The collector retains events until every dataset has read them.

    Args:
        folder: the collector's folder, an absolute path; the worker writes to it how far it has read.
    """

    folder: str

    needs: ClassVar[str] = "a stream: .stream(...)"

    def stream(self, stream: str) -> CollectorStream:
        """Return the connector for one stream.

        Args:
            stream: its name.
        """
        check_name(stream)
        return CollectorStream(source=self, stream=stream)


@dataclass
class StreamSource(SplitSource):
    """The reader of a stream, with rows numbered as in its log.

    Args:
        connector: the stream.
        directory: the deployment's folder.
        key: of the source's position.
    """

    connector: CollectorStream
    directory: Path
    key: str
    _noted_at: float = field(default=float("-inf"), init=False, compare=False)
    _before: tuple[Position] | None = field(default=None, init=False, compare=False)

    @property
    def _log(self) -> EndpointSource:
        return EndpointSource(self.connector.folder, Webhook(name=SYSTEM).endpoint(self.connector.stream))

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return the unread records up to a byte budget, and the position after them."""
        if not log_of(self.connector.folder, self.connector.stream).is_dir():
            return (), position  # nobody has sent to the stream yet
        if time.monotonic() - self._noted_at > NOTE_EVERY:
            self._note(position)
        return self._log.plan(position, budget)

    def _note(self, position: Position) -> None:
        """Tell the collector what may be deleted: what was read one note ago.

        A batch that is run again after a crash still finds its input; so the first note of a process moves nothing.
        """
        folder, before = log_of(self.connector.folder, self.connector.stream), self._before
        self._noted_at, self._before = time.monotonic(), (position,)
        if before is not None or self._reader not in positions(folder):
            reached = before[0] if before is not None else None
            at = ORIGIN if reached is None else LogPosition.from_json(reached)
            note_position(folder, self._reader, f"a dataset of the deployment in {self.directory.name}", at)

    @property
    def _reader(self) -> str:
        path = self.directory / "collect-reader"
        if not path.exists():
            disk.replace(path, secrets.token_hex(8).encode())
        return blake2b(path.read_bytes() + self.key.encode(), digest_size=6).hexdigest()

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the rows of a split."""
        return self._log.open(split, requested, exact=exact)

    def check(self, position: Position) -> None:
        """Check that reading can resume at a position.

        Raises:
            Damaged: the log lacks records that were read up to that position.
        """
        self._log.check(position)

    def examine(self) -> None:
        """Check that a collector has been there.

        Raises:
            InvalidValue: the folder is not that of a collector.
        """
        folder = self.connector.folder
        if not (folder / "ingest").is_dir() and not (folder / "collector.lock").exists():
            raise InvalidValue(
                f"{self.connector.title}: {folder} is not the folder of a collector",
                hint="start one first: umbel collect --dir FOLDER; on the same machine, or a shared volume",
            )
