"""Parts of an offline query: bounded pieces of the input, each answered by itself.

Parts depend on the input files alone, so a part that is answered again is the same, whoever does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from umbel.functions.fingerprint import fingerprint

PART_ROWS = 131_072
"""The largest number of rows of a part, where files tell how many they have."""
PART_BYTES = 32 << 20
"""The largest number of uncompressed bytes of a part, about; a compressed text file is one part."""


@dataclass(frozen=True, slots=True)
class InputSlice:
    """A piece of one input file.

    Args:
        file: the number of the file.
        begin: as in `Piece`.
        end: as in `Piece`.
        rows: the number of its rows, 0 where the file does not tell.
        weight: the approximate number of bytes to read.
    """

    file: int
    begin: int
    end: int | None
    rows: int
    weight: int

    def joined(self, following: InputSlice) -> InputSlice:
        """Return this slice together with the one that begins where it ends."""
        rows, weight = self.rows + following.rows, self.weight + following.weight
        return InputSlice(self.file, self.begin, following.end, rows, weight)


@dataclass(frozen=True, slots=True)
class InputPart:
    """Neighbouring slices that are answered together.

    Args:
        number: of the part; its rows are before those of the parts with higher numbers.
        slices: in the order of the input.
    """

    number: int
    slices: tuple[InputSlice, ...]

    @property
    def weight(self) -> int:
        """The approximate number of bytes to read, at least 1."""
        return max(1, sum(each.weight for each in self.slices))


@dataclass(frozen=True, slots=True)
class PartReport:
    """The result of a part.

    Args:
        number: of the part.
        taken: rows read.
        failed: rows read without an answer.
        error: why the query fails, empty if it does not.
    """

    number: int
    taken: int = 0
    failed: int = 0
    error: str = ""


def packed(slices: Iterable[InputSlice]) -> list[InputPart]:
    """Return slices packed into parts of bounded rows and bytes."""
    return [InputPart(number, each) for number, each in enumerate(_packed(slices))]


def _packed(slices: Iterable[InputSlice]) -> Iterator[tuple[InputSlice, ...]]:
    collected, rows, weight = list[InputSlice](), 0, 0
    for each in slices:
        if collected and (rows + each.rows > PART_ROWS or weight + each.weight > PART_BYTES):
            yield tuple(collected)
            collected, rows, weight = [], 0, 0
        rows, weight = rows + each.rows, weight + each.weight
        if collected and (collected[-1].file, collected[-1].end) == (each.file, each.begin):
            collected[-1] = collected[-1].joined(each)
        else:
            collected.append(each)
    if collected:
        yield tuple(collected)


def plan_of(parts: Sequence[InputPart]) -> str:
    """Return a fingerprint of parts: reports of parts of another plan say nothing about these."""
    return fingerprint(list(parts))


def encoded(reports: Iterable[PartReport]) -> dict[str, list[int]]:
    """Return the reports of answered parts as plain data."""
    return {str(each.number): [each.taken, each.failed] for each in reports}


def decoded(reports: Mapping[str, Sequence[int]]) -> list[PartReport]:
    """Return the reports encoded by `encoded`."""
    return [PartReport(int(number), taken, failed) for number, (taken, failed) in reports.items()]
