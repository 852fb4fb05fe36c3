"""Delimited text with a quote that is not closed: its records are found one by one, each line looked at once."""

from __future__ import annotations

from typing import Any

from umbel.formats import delimited


class CountedLines(list[bytes]):
    """Lines that count how many of them are read."""

    read = 0

    def __getitem__(self, at: Any) -> Any:
        self.read += len(range(*at.indices(len(self)))) if isinstance(at, slice) else 1
        return super().__getitem__(at)


def test_a_record_reads_its_own_lines_only() -> None:
    lines = CountedLines([b'"a', b'b",1', *[b"c,2"] * 1000])
    assert delimited._lines_of_record(lines, 0) == 2
    assert delimited._lines_of_record(lines, 2) == 1
    assert lines.read == 3


def test_a_quote_that_is_not_closed_ends_with_its_line() -> None:
    lines = CountedLines([b'"a', *[b"c,2"] * 5])
    assert [delimited._lines_of_record(lines, at) for at in range(6)] == [1] * 6
