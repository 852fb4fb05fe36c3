"""Standard input and pipes: their lines are transformed as they come."""

from __future__ import annotations

import subprocess
import sys
import threading
from codecs import BOM_UTF8
from pathlib import Path

import pytest

from umbel.transform import inputs
from umbel.transform.inputs import _piece, _without_mark
from umbel.transform.parts import Lines

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
