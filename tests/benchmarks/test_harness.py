"""Figures, their bars, and the processes they are measured in."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from benchmarks import run
from benchmarks.data import transactions
from benchmarks.figure import Figure, readable
from benchmarks.process import disk_of, measure
from benchmarks.run import names, record, table


@pytest.mark.parametrize(
    ("figure", "bar", "verdict"),
    [
        (Figure("speed", 4.0, "×", at_least=4), "≥ 4 ×", "reached"),
        (Figure("speed", 3.0, "×", at_least=4), "≥ 4 ×", "missed by 25%"),
        (Figure("latency", 400.0, "ms", at_most=400), "≤ 400 ms", "reached"),
        (Figure("latency", 1000.0, "ms", at_most=400), "≤ 400 ms", "missed by 150%"),
        (Figure("rows", 1.0, "rows/s"), "", ""),
    ],
)
def test_a_figure_knows_its_bar(figure: Figure, bar: str, verdict: str) -> None:
    assert (figure.bar, figure.verdict) == (bar, verdict)


def test_numbers_are_written_to_be_read() -> None:
    assert [readable(number) for number in (1234567.8, 99.94, 0.012345, 0)] == ["1,234,568", "99.9", "0.0123", "0"]


def test_the_table_and_the_record_hold_every_figure() -> None:
    results = {"one": [Figure("a [b]", 1.0, "ms", at_most=2, note="x")], "two": [Figure("c", 3.0, "GiB", at_most=2)]}
    console = Console(width=120, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as shown:
        console.print(table(results))
    assert all(text in shown.get() for text in ("a [b]", "reached", "missed by 50%", "≤ 2 GiB"))
    written = json.loads(json.dumps(record(results)))
    assert written["figures"]["two"][0]["is_reached"] is False


def test_the_benchmarks_are_found_by_their_files() -> None:
    assert "baseline_spark" in names()


def test_a_benchmark_that_fails_ends_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_own_process(name: str) -> list[Figure]:
        if name == "chain":
            raise subprocess.CalledProcessError(1, name)
        return [Figure(f"of {name}", 1.0, "ms")]

    monkeypatch.setattr(run, "in_own_process", in_own_process)
    monkeypatch.setattr(run, "names", lambda: ["backfill", "chain", "serving"])
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(run.aot_cache, "location", lambda: None)
    with pytest.raises(SystemExit, match=r"failed: chain; to run them again: python -m benchmarks\.run chain"):
        run.main([])
    shown = capsys.readouterr().out
    assert "of backfill" in shown
    assert "of serving" in shown
    assert not run.RESULTS.exists(), "a table that lacks some is no table"


def test_the_disk_is_measured_while_files_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x" * 8192)
    (tmp_path / "folder").mkdir()
    whole, known = disk_of(tmp_path), Path.rglob
    assert whole == 2 * 8192

    def deleted_after(folder: Path, pattern: str) -> list[Path]:
        found = list(known(folder, pattern))
        (tmp_path / "b").unlink()
        return found

    monkeypatch.setattr(Path, "rglob", deleted_after)
    assert disk_of(tmp_path) == 8192


def test_transactions_are_made_once_and_the_same(tmp_path: Path) -> None:
    folder = transactions(1000, 4, tmp_path)
    made = [path.read_bytes() for path in sorted(folder.iterdir())]
    assert transactions(1000, 4, tmp_path) == folder
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    again = transactions(1000, 4, tmp_path / "again")
    assert [path.read_bytes() for path in sorted(again.iterdir())] == made
    rows = pl.concat(pl.read_ndjson(path) for path in sorted(folder.iterdir()))
    assert rows.columns == ["uid", "amount", "merchant_id", "country", "payment_country", "ts"]
    assert rows.height == 1000
    assert rows["ts"].is_sorted()


def test_a_process_is_measured_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hungry.py").write_text(
        "import subprocess, sys\n"
        "code = 'import time; held = bytearray(200 << 20); held[::4096] = b\"x\" * len(held[::4096]); time.sleep(1)'\n"
        "subprocess.run([sys.executable, '-c', code], check=True)\n"
        "print('noise')\n"
        "print('{\"rows\": 3}')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    measured = measure("hungry")
    assert measured.report == {"rows": 3}
    assert 200 << 20 < measured.rss < 400 << 20
    assert measured.pss <= measured.rss
    assert 200 << 20 <= max(size for _, size in measured.samples) < measured.rss


def test_a_process_that_fails_is_an_error() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        measure("there.is.no.such.module")
