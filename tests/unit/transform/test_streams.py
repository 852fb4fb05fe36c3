"""Standard input and pipes: their lines are transformed as they come."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
import tracemalloc
from codecs import BOM_UTF8
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import polars as pl
import pytest

from umbel.errors import Transient
from umbel.transform import inputs
from umbel.transform import run as transformation
from umbel.transform.configuration import loads
from umbel.transform.inputs import _piece, _without_mark
from umbel.transform.parts import Lines
from umbel.transform.workers import TransformWorkers

LATEST = 300.0
"""Seconds after which a filter that writes nothing is ended."""


def test_a_filter_writes_the_records_of_what_has_come(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("source_field: a\ntarget_field: b\n")
    command = [sys.executable, "-m", "umbel", "transform", "--quiet", "-c", str(tmp_path / "c.yaml")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ending = threading.Timer(LATEST, process.kill)
        ending.start()
        for number in range(3):
            process.stdin.write(b'{"a":%d}\n{"a":' % number)
            process.stdin.flush()
            assert process.stdout.readline() == b'{"b":%d}\n' % number  # while the input goes on
            process.stdin.write(b'"x"}\n')
            process.stdin.flush()
            assert process.stdout.readline() == b'{"b":"x"}\n'
        process.stdin.close()
        assert (process.stdout.read(), process.wait()) == (b"", 0)
        ending.cancel()


class _Steady:
    """A stream that has another line whenever it is read."""

    def read1(self, size: int) -> bytes:
        return b"{}\n"[:size]


def test_lines_that_come_without_a_pause_become_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_is_ready", lambda _: True)
    monkeypatch.setattr(inputs, "PART_BYTES", 30)
    assert _piece(_Steady()) == b"{}\n" * 10
    monkeypatch.setattr(inputs, "LONGEST", -1.0)
    assert _piece(_Steady()) == b"{}\n"


def test_the_mark_at_the_beginning_comes_after_a_pause() -> None:
    parts = iter([Lines("in"), Lines("in", BOM_UTF8 + b"{}\n"), Lines("in", BOM_UTF8)])
    assert [each.data for each in _without_mark(parts)] == [b"", b"{}\n", BOM_UTF8]


class _Lines:
    """A stream of lines that is read up to somewhere within a line."""

    def __init__(self, size: int) -> None:
        self._rest = memoryview(b'{"a":1}\n{}\n' * (size // 11))

    def read1(self, size: int) -> bytes:
        piece, self._rest = self._rest[:size], self._rest[size:]
        return bytes(piece)


def test_a_part_of_a_stream_is_in_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes as they were read, and with what was left before, stayed until the next part was read."""
    monkeypatch.setattr(inputs, "_is_ready", lambda _: True)
    monkeypatch.setattr(inputs, "LONGEST", LATEST)
    parts = inputs._stream(cast(BinaryIO, _Lines(5 * inputs.PART_BYTES)), "in")
    tracemalloc.start()
    try:
        for _ in range(3):
            size = len(next(parts).data)
            assert tracemalloc.get_traced_memory()[0] < 1.5 * size
    finally:
        tracemalloc.stop()


def test_a_long_run_returns_the_gaps_between_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They added up: after 40 million records of a filter its memory had grown by a tenth."""
    trims = list[int]()
    monkeypatch.setattr(inputs, "RANGE_BYTES", 8)
    monkeypatch.setattr(transformation, "TRIMMED", 2)
    monkeypatch.setattr(transformation, "trim", lambda: trims.append(len(out.getvalue())))
    (tmp_path / "in.json").write_text('{"a":1}\n' * 5)
    with TransformWorkers(loads("source_field: a\ntarget_field: b\n"), 1) as workers, BytesIO() as out:
        transformation.run(workers, inputs.inputs([str(tmp_path / "in.json")]), out)
        assert out.getvalue() == b'{"b":1}\n' * 5
    assert trims == [16, 32]


def test_a_file_of_several_names_is_read_once(tmp_path: Path) -> None:
    for name in ("a.json", "b.json", "c.json"):
        (tmp_path / name).write_text("{}\n")
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    names = [str(tmp_path / "b*"), str(tmp_path / "*.json"), str(tmp_path), f"{tmp_path}/../{tmp_path.name}/c.json"]
    found = inputs.inputs([*names, "-", "-"])
    assert [each.path.name for each in found] == ["b.json", "a.json", "c.json", "-"]


@pytest.mark.parametrize("name", ["in.json.gz", "in.parquet"])
def test_a_packed_file_that_is_cut_while_it_is_read_ends_the_run(tmp_path: Path, name: str) -> None:
    """It was one dead letter, and the output of a part of the file replaced the former one."""
    path, rows = tmp_path / name, pl.DataFrame({"a": [os.urandom(40).hex() for _ in range(100_000)]})
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(rows.write_ndjson().encode(), 1))
    else:
        rows.write_parquet(path)
    (file,) = inputs.inputs([str(path)])
    parts = file.parts(lambda _: None)
    assert next(parts).data
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(Transient, match=f"{name}: it became shorter while it was read"):
        list(parts)


@pytest.mark.parametrize(("size", "change"), [(8, "became shorter"), (39, "became shorter"), (40, "was replaced")])
def test_a_file_that_changes_while_it_is_read_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, change: str
) -> None:
    """Records of a shorter file were not counted, or the run never ended; those of two files were mixed."""
    monkeypatch.setattr(inputs, "RANGE_BYTES", 8)
    path, other = tmp_path / "in.json", tmp_path / "other.json"
    path.write_text('{"a":1}\n' * 5)
    other.write_text('{"a":2}\n' * 5)
    (file,) = inputs.inputs([str(path)])
    parts = file.parts(lambda _: None)
    assert next(parts).read() == b'{"a":1}\n'
    os.truncate(path, size) if size < 40 else other.replace(path)
    with (
        TransformWorkers(loads("source_field: a\ntarget_field: b\n"), 1) as workers,
        pytest.raises(Transient, match=f"in.json: it {change} while it was read"),
    ):
        list(workers.results(islice(parts, 20)))
