"""Sources whose messages are staged: a row for each, with its bytes and its location."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, cast

import polars as pl

from umbel.connectors.splits import Split
from umbel.connectors.staged_source import StagedSource
from umbel.connectors.staging import StagedPart
from umbel.formats.messages import message_format
from umbel.formats.raw_batch import RawBatch
from umbel.types.dtype import DType
from umbel.types.raw import Raw, rejects

MESSAGE, PLACE, REFUSED = "_message", "_place", "_refused"
"""Columns of staged rows: the bytes, the location, and why a message was rejected before it was parsed; null for not."""
REPORT, COUNTS = "report", "counts"
"""Facts of staged parts: the reason of a report, and counts of what is not among the rows."""
ERASED = "its bytes were erased"


@dataclass(frozen=True, slots=True)
class StagedMessage:
    """A message as it is staged.

    Args:
        data: its bytes.
        place: its location in the source.
        refused: why it cannot be read, None if it may be.
    """

    data: bytes
    place: str
    refused: str | None = None


def staged_frame(messages: Sequence[StagedMessage]) -> pl.DataFrame:
    """Return messages as the rows of a part."""
    return pl.DataFrame(
        {
            MESSAGE: [each.data for each in messages],
            PLACE: [each.place for each in messages],
            REFUSED: [each.refused for each in messages],
        },
        schema={MESSAGE: pl.Binary, PLACE: pl.String, REFUSED: pl.String},
    )


class StagedMessages(StagedSource):
    """The reading side of a source of JSON messages that are staged."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: connections that a thread has open stay with it."""
        return {each.name: getattr(self, each.name) for each in fields(cast("Any", self))}

    def open(self, split: Split, requested: Mapping[str, DType], *, exact: bool) -> Iterator[RawBatch]:
        """Yield the messages of a part as rows."""
        part = self.stage.part(int(split["part"]))
        if REPORT in part.facts:
            yield self.report_of(part)
            return
        staged, first = self.stage.read(part.number), 0
        counts: Mapping[str, int] = part.facts.get(COUNTS, {})
        for raw in self.rows_of(staged, requested, exact=exact):
            yield self._batch(raw, staged, part, first, counts)
            first, counts = first + raw.frame.height, {}

    def messages_of(self, staged: pl.DataFrame) -> pl.Series:
        return staged[MESSAGE]

    def rows_of(self, staged: pl.DataFrame, requested: Mapping[str, DType], *, exact: bool) -> Iterator[Raw]:
        return message_rows(staged[MESSAGE], staged[REFUSED].to_list(), requested, exact=exact)

    def _batch(
        self, raw: Raw, staged: pl.DataFrame, part: StagedPart, first: int, counts: Mapping[str, int]
    ) -> RawBatch:
        return RawBatch(
            raw,
            part.first + first,
            lambda row: f"{self.title}: {staged[PLACE][first + row]}",
            lambda row: staged[MESSAGE][first + row] or b"",
            counts=counts,
            partitions=self.partitions_of(staged[PLACE].slice(first, raw.frame.height)),
        )

    def partitions_of(self, places: pl.Series) -> pl.Series | None:
        """Return the partitions of messages by their locations, None if the source has none."""
        del places
        return None


def message_rows(
    staged: pl.Series, refused: Sequence[str | None], requested: Mapping[str, DType], *, exact: bool
) -> Iterator[Raw]:
    """Yield staged messages in order; those refused before, and erased ones, as rejected rows.

    Args:
        staged: their bytes, null if erased.
        refused: why a message was rejected before, None for not.
        requested: the requested columns and their types.
        exact: True if only these columns are returned.
    """
    form = message_format("json", requested, exact=exact)
    reasons = list(refused)
    for row in staged.is_null().arg_true():
        reasons[row] = ERASED
    messages = staged.to_list()
    for is_refused, rows in groupby(range(len(messages)), key=lambda row: reasons[row] is not None):
        run = list(rows)
        if is_refused:
            found = {number: str(reasons[row]) for number, row in enumerate(run)}
            yield Raw(pl.DataFrame(height=len(run)), rejects(found))
        else:
            yield from form.read([messages[row] for row in run])
