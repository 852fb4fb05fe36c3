"""Sources whose rows are staged by a thread: splits are the staged parts.

Exactly once rests on these parts: they are opened again with the same rows, whatever the server has by then.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from umbel.connectors.lag import SourceLag
from umbel.connectors.polling import Poller, advance, poller_of, reader_state, unread_of
from umbel.connectors.splits import Found, Position, SplitSource
from umbel.connectors.staging import OWN, Stage, StagedPart, folder_of
from umbel.definitions.arguments import ReadOptions
from umbel.errors import Damaged, UmbelError
from umbel.formats.raw_batch import RawBatch, lost
from umbel.log.reading import RESTORE
from umbel.types.dtype import DType
from umbel.types.raw import Raw, rejects

IDENTITY = f"{OWN}identity"
"""The column of staged rows with a digest of the row."""
AHEAD_BYTES = 1 << 30
"""Bytes of staged rows that no batch has read yet from which on reading waits."""
PATIENCE = 0.2
"""Seconds that planning a batch waits for a read that is under way."""


class StagedSource(SplitSource):
    """The reading side of a source whose rows are staged.

    Subclasses are frozen dataclasses: a thread that reads for an equal one goes on.
    """

    options: ReadOptions

    paces_itself: ClassVar[bool] = True
    has_partitions: ClassVar[bool] = False
    """True if `partitions_in` and `known_partitions` return some."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The description of the source, for messages."""

    @property
    def folder(self) -> Path:
        """The folder of the staged rows."""
        return folder_of(self.options.directory, self.options.key)

    @cached_property
    def stage(self) -> Stage:
        """The staged rows."""
        return Stage(self.folder)

    @property
    def loads_unordered(self) -> bool:
        return True

    @property
    def is_loading(self) -> bool:
        return not self.stage.state().get("loaded", False)

    def read_ahead(self) -> None:
        poller_of(self).renew()

    def tend(self) -> None:
        poller_of(self).renew(PATIENCE)

    def take_over(self) -> None:
        """Forget what is known of the folder, see `Polled`."""
        self.__dict__.pop("stage", None)

    def release(self) -> None:
        """Close what is open at the server, see `Polled`."""
        return

    def visible(self) -> Sequence[int]:
        """Return the numbers of the parts that may be read."""
        return self.stage.numbers()

    def has_room(self, poller: Poller) -> bool:
        """Wait while much is staged that no batch has read; return whether to read on."""
        while not poller.is_stopping:
            if self.has_room_now(poller):
                return True
            time.sleep(0.1)
        return False

    def has_room_now(self, poller: Poller) -> bool:
        """Return whether less is staged that no batch has read than reading waits for."""
        return self.stage.size_after(poller.planned) < AHEAD_BYTES

    def report(self, error: UmbelError) -> None:
        """Stage an error as a rejected record, for the dead letters.

        The last one is not repeated if nothing was read since.
        """
        self.stage.state()  # where parts are missing a new one would have the number of one of them
        reason = f"{error.message}; hint: {error.hint}" if error.hint else error.message
        last = self.stage.last()
        if last is None or last.facts.get("report") != reason:
            self.stage.append(pl.DataFrame({IDENTITY: [0]}), {"report": reason})

    def report_of(self, part: StagedPart) -> RawBatch:
        """Return the rejected record of a staged error; each has a position of its own."""
        where = f"{self.title}, report {part.number}"
        return RawBatch(lost(part.facts["report"]), part.first, lambda _: where, lambda _: b"")

    def plan(self, position: Position, budget: int) -> tuple[Sequence[Found], Position]:
        """Return the parts up to a byte budget that were staged after the position's.

        Raises:
            Damaged: one of them is missing.
        """
        self.check(position)
        read, found = int(position["part"]) if position else 0, list[Found]()
        numbers = [number for number in self.visible() if number > read]
        advance(self.folder, read)
        for number in numbers:
            if found and budget <= 0:
                break
            part = self.stage.part(number)
            found.append(({"part": number}, part.size))
            budget -= part.size
            read = number
        return found, {"part": read}

    def partitions_in(self, facts: Mapping[str, Any]) -> Collection[str]:
        """Return the partitions that a part has rows of, by its facts."""
        del facts
        return ()

    def known_partitions(self) -> Collection[str]:
        """Return the partitions that may have more rows, by what is saved."""
        return ()

    def unread_partitions(self, position: Position) -> Collection[str]:
        """Return the partitions with rows beyond a position: at the server, or staged.

        As long as this process has not asked the server, that is all of them.
        """
        if not self.has_partitions:
            return ()
        found, read = unread_of(self.folder), int(position["part"]) if position else 0  # what leaves it is staged then
        at_server = frozenset(self.known_partitions()) if found is None else found
        staged = [self.stage.part(number).facts for number in self.visible() if number > read]
        return at_server.union(*map(self.partitions_in, staged))

    def lag(self, position: Position) -> SourceLag:
        """Return what is staged beyond a position, and what the server has beyond that."""
        read = int(position["part"]) if position else 0
        parts = [self.stage.part(number) for number in self.visible() if number > read]
        oldest = min((self.stage.staged_at(part.number) for part in parts), default=None)
        waited = 0.0 if oldest is None else max(0.0, time.time() - oldest)
        staged = SourceLag(sum(part.rows for part in parts), sum(part.size for part in parts), waited)
        return staged + reader_state(self.folder)[0]

    @property
    def trouble(self) -> str:
        return reader_state(self.folder)[1]

    def check(self, position: Position) -> None:
        """Check that reading can resume at a position.

        Raises:
            Damaged: parts after it are missing.
        """
        read, numbers = int(position["part"]) if position else 0, self.stage.numbers()
        later = [number for number in numbers if number > read]
        is_gone = read > max(numbers, default=0)
        has_gap = bool(later) and ((later[0] != read + 1 and read > 0) or later[-1] - later[0] + 1 != len(later))
        if is_gone or has_gap:
            raise Damaged(
                f"{self.title}: staged rows after part {read} are missing in {self.folder.name}", hint=RESTORE
            )

    def messages_of(self, staged: pl.DataFrame) -> pl.Series | None:
        """Return the bytes of staged messages, None if rows are staged as columns."""
        del staged
        return None

    def rows_of(self, staged: pl.DataFrame, requested: Mapping[str, DType], *, exact: bool) -> Iterator[Raw]:
        """Yield staged rows in order; erased messages as rejected rows."""
        there = [name for name in staged.columns if not exact or not requested or name in requested]
        yield Raw(staged.select(there) if there else pl.DataFrame(height=staged.height), rejects({}))

    def fields_of(self, staged: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
        """Return the values of fields in staged rows, for the erasure of rows.

        Args:
            staged: the rows of a part.
            names: of the columns.
        """
        del names
        return staged

    @abstractmethod
    def read_on(self, poller: Poller) -> float:
        """Read what is new, see `Polled`."""
