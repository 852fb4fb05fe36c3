"""Delimited text with a quote that is not closed: its records are found one by one, each line looked at once."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.unit.connectors.reading import read
from umbel.connectors import file_source
from umbel.connectors.files import Files
from umbel.formats import chunks, delimited, files, unpacking
from umbel.formats.declarations import CSV
from umbel.types.dtypes import Int, Str


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


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("budget", [1, 70, 600])
def test_a_quote_that_is_not_closed_does_not_make_a_file_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, budget: int
) -> None:
    for module in (chunks, delimited):
        monkeypatch.setattr(module, "MAX_ROW", 200)
        monkeypatch.setattr(module, "CHUNK_BYTES", 100)
    for module in (files, unpacking):
        monkeypatch.setattr(module, "UNPACKED_BYTES", 100)
    monkeypatch.setattr(file_source, "LEAST_SPLIT", 1)
    rows = [(number, f"row {number}") for number in range(300)]
    lines = [f"{number},{text}" for number, text in rows]
    data = "\n".join(["n,s", *lines[:20], '0,"open', *lines[20:], ""]).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    reading = Files(name="f", folder=str(tmp_path)).path(name, CSV()).reader(tmp_path)
    sizes, position = list[int](), None
    while (planned := reading.plan(position, budget))[0]:
        position = planned[1]
        sizes += [size for _, size in planned[0]]
    assert max(sizes) <= budget + 200 + 2 * 100
    found = read(reading, {"n": Int(), "s": Str()}, budget=budget)
    assert found.values() == rows
    assert found.reasons() == ["a quote that is not closed"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("header", ["n,s", "\ufeffn,s", '"n","s"', "\nn,s"], ids=repr)
def test_the_rows_behind_a_header_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, header: str
) -> None:
    monkeypatch.delattr(delimited.Delimited, "_error")
    (tmp_path / "a.csv").write_bytes(f"{header}\n1,a\n2,b\n".replace("\n", end).encode())
    reading = Files(name="f", folder=str(tmp_path)).path("a.csv", CSV()).reader(tmp_path)
    assert read(reading, {"n": Int(), "s": Str()}).values() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r\n\r\n"])
def test_a_header_alone_has_no_rows(tmp_path: Path, end: str) -> None:
    (tmp_path / "a.csv").write_bytes(b"n,s" + end.encode())
    found = read(Files(name="f", folder=str(tmp_path)).path("a.csv", CSV()).reader(tmp_path), {"n": Int(), "s": Str()})
    assert (found.values(), found.reasons()) == ([], [])
