"""Dead letters that are processed again, as splits of batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.catalog.replays import TO_REPLAY, LetterFilter, Replays, StoredLetter
from umbel.formats.declarations import CSV
from umbel.formats.delimited import Delimited
from umbel.formats.json_lines import JsonLines
from umbel.formats.messages import JsonMessages
from umbel.formats.pieces import with_absent
from umbel.formats.raw_batch import RawBatch
from umbel.formats.text_types import spelled
from umbel.functions.fingerprint import fingerprint
from umbel.runtime.sources import SOURCE_SHIFT, OpenedSource, open_sources
from umbel.types.dtype import DType
from umbel.types.raw import Raw

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

AT_ONCE = 2000
"""Dead letters of one split."""
LAST_NUMBERS = 1 << (SOURCE_SHIFT - 1)
"""Added to an id, gives the number of a row: behind those that its source read before."""


def origin_of(source: OpenedSource) -> str:
    """Return the mark of the dead letters of a source, as it is defined."""
    return str(fingerprint(source.key))


def replayable(sources: Sequence[OpenedSource], dataset: str) -> dict[int, str]:
    """Return the origins of a dataset's sources whose dead letters can be replayed, by ordinal."""
    return {
        each.source: origin_of(each)
        for each in sources
        if each.dataset == dataset and each.definition.connector.letter_format is not None
    }


@dataclass
class ReplaySource:
    """The replays of a source, as a source of batches.

    Args:
        replays: of the deployment.
        opened: the source.
        last: the last replay that was requested.
    """

    replays: Replays
    opened: OpenedSource
    last: int
    trouble: str = ""

    is_bounded = has_ended = is_loading = loads_unordered = False

    @property
    def dataset(self) -> str:
        """The dataset of its rows."""
        return self.opened.dataset

    @property
    def source(self) -> int:
        """The ordinal of the source."""
        return self.opened.source

    @property
    def key(self) -> str:
        """The key of its position: the number of the last replay that was planned."""
        return f"replay:{self.dataset}/{self.source}"

    def read_ahead(self) -> None:
        """Begin to read: letters are there."""

    def plan(self, position: Any, budget: int) -> tuple[Sequence[tuple[Mapping[str, Any], int]], Any]:
        """Return the splits of all replays after a position: their number is bounded."""
        del budget
        found = list[tuple[Mapping[str, Any], int]]()
        for number in range((position or 0) + 1, self.last + 1):
            ids = self.replays.ids(number, self.dataset, self.source, origin_of(self.opened))
            parts = [ids[begin : begin + AT_ONCE] for begin in range(0, len(ids), AT_ONCE)]
            found += [({"replay": number, "ids": part}, 1000 * len(part)) for part in parts]
        return found, self.last

    def unread_partitions(self, position: Any) -> Collection[str]:
        """Return no partition: a replay has none."""
        del position
        return ()

    def check(self, position: Any) -> None:
        """Accept any position."""


def replay_sources(replays: Replays, sources: Sequence[OpenedSource]) -> list[ReplaySource]:
    """Return the sources of replays of a deployment's sources; none without a request."""
    last = replays.last()
    if not last:
        return []
    named = {f"{each.dataset}/{each.source}": each for each in sources}
    return [ReplaySource(replays, named[name], number) for name, number in last.items() if name in named]


def replayed(
    replays: Replays, source: OpenedSource, split: Mapping[str, Any], requested: Mapping[str, DType]
) -> Iterator[RawBatch]:
    """Yield the rows of the dead letters of a split."""
    letters, number = replays.read(split["ids"]), split["replay"]
    made, form = source.definition, source.definition.connector.letter_format
    exact = not made.preproc and made.where is None and made.transform is None
    if isinstance(form, CSV):
        for each in letters:
            text = Delimited(tuple(form.headers or ()), form.delimiter).read(each.raw + b"\n")
            yield _batch(source, number, [each], spelled(with_absent(text, requested), requested))
        return
    first, texts = 0, [each.raw for each in letters]
    is_of_messages = made.connector.is_stream  # a message may begin with the id of a schema
    rows = JsonMessages(requested, exact=exact).read if is_of_messages else JsonLines(requested, exact=exact).texts
    for raw in rows(texts):
        yield _batch(source, number, letters[first : first + raw.frame.height], raw)
        first += raw.frame.height


def _batch(source: OpenedSource, number: int, letters: Sequence[StoredLetter], raw: Raw) -> RawBatch:
    steps = pl.Series([each.id for each in letters], dtype=pl.Int64)
    return RawBatch(
        raw,
        (source.source << SOURCE_SHIFT) + LAST_NUMBERS,
        lambda row: f"replay {number}: {letters[row].position}",
        lambda row: letters[row].raw,
        counts={"replayed": raw.frame.height},
        steps=steps,
    )


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The outcome of a request to process dead letters again.

    Args:
        number: of the replay, None if none was made.
        count: of the records in it; for a dry run, of those that would be.
        left_out: the numbers of the others, by reason.
    """

    number: int | None
    count: int
    left_out: Mapping[str, int]


def replay_letters(
    deployment: Deployment, letters: LetterFilter, names: Sequence[str] = (), *, dry_run: bool = False
) -> ReplayReport:
    """Mark dead letters to be processed with the next batches.

    Args:
        deployment: the deployment.
        letters: the dead letters.
        names: of their dataset in the graph, of which there are two during a backfill; else that of the filter.
        dry_run: whether to count only.
    """
    replays, graph = Replays(deployment.catalog), deployment.graph(deployment.catalog.latest())
    opened = list(open_sources(deployment.directory, graph))
    chosen = [(replace(letters, dataset=name), replayable(opened, name)) for name in names or [letters.dataset]]
    counts = sum((replays.examine(*each) for each in chosen), Counter[str]())
    count, number = counts.pop(TO_REPLAY, 0), None
    if count and not dry_run:
        number, count = replays.request(chosen)
    return ReplayReport(number, count, counts)
