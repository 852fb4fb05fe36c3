"""Runs of the transformation: from inputs to an output, with counts, dead letters and progress."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import BinaryIO

from umbel.processes.allocation import trim
from umbel.transform.inputs import InputFile
from umbel.transform.outputs import letter_line
from umbel.transform.parts import Done, Letter, Lines
from umbel.transform.workers import TransformWorkers

SHOWN = 3
"""Dead letters shown in the summary where they are not written to a file."""
TRIMMED = 64
"""Parts after which memory that is not used is returned: the gaps between parts, which are of any size, add up otherwise."""


@dataclass
class Summary:
    """The counts of a run.

    Args:
        records: the input records.
        written: the output records.
        letters: the dead letters, by step.
        dropped: the records left out by `on_error: drop`.
        nulls: the failed steps with `on_error: null`.
        one_by_one: the records processed outside of the plan.
        seconds: the time it took.
        first: the first dead letters, for people.
    """

    records: int = 0
    written: int = 0
    letters: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    nulls: int = 0
    one_by_one: int = 0
    seconds: float = 0.0
    first: list[str] = field(default_factory=list)

    def add(self, done: Done) -> None:
        """Count the result of a part."""
        self.records += done.records
        self.written += done.written
        self.dropped += done.dropped
        self.nulls += done.nulls
        self.one_by_one += done.one_by_one
        self.letters.update(each.step for each in done.letters)

    def __str__(self) -> str:
        steps = ", ".join(f"{name} {count:,}" for name, count in self.letters.most_common())
        parts = [
            f"{self.records:,} records read",
            f"{self.written:,} written",
            f"{self.letters.total():,} dead letters" + (f" ({steps})" if steps else ""),
            *([f"{self.dropped:,} dropped"] if self.dropped else []),
            *([f"{self.nulls:,} steps failed to null"] if self.nulls else []),
        ]
        rate = self.records / self.seconds if self.seconds else 0.0
        return f"{', '.join(parts)}; {self.seconds:.1f} s, {rate:,.0f} records/s"


def run(
    workers: TransformWorkers,
    files: list[InputFile],
    target: BinaryIO,
    *,
    dead_letters: BinaryIO | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Summary:
    """Transform files, in order; return the counts.

    Args:
        workers: of the configuration.
        files: the inputs.
        target: receives the output records, as lines of JSON.
        dead_letters: receives the dead letters, as lines of JSON.
        advance: called with the numbers of input bytes read.

    Raises:
        Terminal: a step with `on_error: fail` failed.
    """
    summary, lines, begun = Summary(), Counter[str](), time.monotonic()
    with closing(workers.results(_parts(files, advance))) as results:  # an error ends the parts in flight
        for number, done in enumerate(results, 1):
            target.write(done.data)
            if not done.lines:  # the input pauses: a reader of the output need not wait
                target.flush()
            summary.add(done)
            for letter in done.letters:
                _report(letter, done.name, lines[done.name] + letter.row + 1, summary, dead_letters)
            lines[done.name] += done.lines
            if number % TRIMMED == 0:
                trim()
    summary.seconds = time.monotonic() - begun
    return summary


def _parts(files: list[InputFile], advance: Callable[[int], None]) -> Iterator[Lines]:
    for file in files:
        yield from file.parts(advance)


def _report(letter: Letter, name: str, line: int, summary: Summary, dead_letters: BinaryIO | None) -> None:
    if dead_letters is not None:
        dead_letters.write(letter_line(letter, name, line))
    elif len(summary.first) < SHOWN:
        at = f" ({letter.at})" if letter.at else ""
        field = f" of '{letter.field}'" if letter.field else ""
        summary.first.append(f"{name}:{line}: {letter.step}{field}{at}: {letter.error}: {letter.message:.200}")
