"""Bounds on dead letters: all rejected rows are counted, a bounded number is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import polars as pl

from umbel.catalog.catalog import DeadLetter

BYTES = 64 << 20
"""Bytes of rejected rows that one batch stores at the most."""
DROPPED = "dead_dropped"
"""The count of dead letters that were not stored."""

REASON = "dead_reason:"
"""The beginning of the names of counts by kind of reason."""
FUNCTION, SINK, OTHER = "function failed", "refused by a sink", "other"
KINDS = {
    "tombstone": "tombstone",
    "source lost or changed": r"^\d+ records from offset|^the file was|is missing: |was deleted|is gone|"
    "changes since then are lost|position in the binary log|another history|another server|was dropped, renamed|purged",
    "not applicable": "of a row: the dataset has no key|was truncated|logged without them|XA transaction|was not sent|"
    "lacks values",
    "transformation": "^transform: ",
    "condition": "^where: ",
    "broken record": "(?i)^broken |not valid|cannot be (parsed|decoded|read)|^invalid|^expected an object|damaged|unknown schema",
    "ahead of time": "is ahead of",
    "missing column": "is missing|are missing",
    "null": "null|got None|^expected .*, got nothing",
    "out of range": "not in |not one of|too (large|small|long|short)|out of range|between|does not match|beyond|elements",
    "wrong type": "^expected |^column '.*': expected ",
}
"""Kinds of reasons, by the pattern of their texts; the first that matches applies.

They are few and fixed: a reason may quote the record, and as a label of a metric must not.
"""


def by_kind(refused: pl.DataFrame) -> dict[str, int]:
    """Return the number of rejected rows by kind of reason, as names of counts.

    Args:
        refused: (row, field, reason) of rejected rows.
    """
    if refused.is_empty():
        return {}
    kind = pl.lit(OTHER)
    for name, pattern in reversed(KINDS.items()):
        kind = pl.when(pl.col("reason").str.contains(pattern)).then(pl.lit(name)).otherwise(kind)
    found = refused.select(kind.alias("kind"), "row").group_by("kind").agg(pl.col("row").n_unique())
    return {f"{REASON}{name}": count for name, count in found.iter_rows()}


class DeadLetters:
    """Dead letters of a batch or a part of it, bounded by number and size.

    The letters with the smallest positions are retained, in whatever order they are added: a batch that is run again stores the
    same ones.

    Args:
        most: the largest number of letters.
    """

    def __init__(self, most: int) -> None:
        self._most, self._letters, self._size = most, list[DeadLetter](), 0
        self._dropped = Counter[str]()

    def add(self, letters: Iterable[DeadLetter]) -> None:
        """Add dead letters."""
        for each in letters:
            self._letters.append(each)
            self._size += len(each.raw)
            if len(self._letters) > 2 * self._most or self._size > 2 * BYTES:
                self._trim()

    def retained(self) -> tuple[list[DeadLetter], Counter[str]]:
        """Return the letters to store, and the number dropped by dataset."""
        self._trim()
        return self._letters, self._dropped

    def _trim(self) -> None:
        if len(self._letters) <= self._most and self._size <= BYTES:
            return
        self._letters.sort(key=lambda each: (each.dataset, each.source, each.position, each.field))
        size = taken = 0
        for each in self._letters[: self._most]:
            size += len(each.raw)
            if size > BYTES:
                break
            taken += 1
        self._dropped.update(each.dataset for each in self._letters[taken:])
        del self._letters[taken:]
        self._size = sum(len(each.raw) for each in self._letters)
