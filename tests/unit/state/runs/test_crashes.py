"""Crashes between any two file operations, of the machine and of the process; damage; and readers in other processes."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.simulated_disk import Disk, PowerFailure, failing
from tests.unit.state.runs.crash_scenario import (
    LAST_BATCH,
    OPTIONS,
    Contents,
    contents,
    job,
    must_continue,
    uninterrupted,
)
from tests.unit.state.runs.tables import REPLACED, SUMMED, A, found, keys_of, opened, write
from umbel.errors import Damaged
from umbel.state.port import Stamp

ROOT = Path(__file__).parents[4]


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start the scenario in a process of its own."""
    command = [sys.executable, "-m", "tests.unit.state.runs.crash_scenario", *arguments]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, stdout=-1, stderr=-1, text=True)


def outcome(process: subprocess.Popen[str]) -> str:
    """Wait for a scenario and return its output."""
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Contents]:
    return uninterrupted(tmp_path_factory.mktemp("expected"))


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.nightly)])
def test_the_power_fails_between_any_two_operations(tmp_path: Path, expected: list[Contents], stride: int) -> None:
    number, failures = 1, 0
    while True:
        root, left = tmp_path / f"{number}", tmp_path / "left"
        root.mkdir()
        disk, committed = Disk(root, failing(number)), 0
        with disk.used(), suppress(PowerFailure):
            for _ in job(opened(root, OPTIONS)):
                committed += 1
        disk.left(left, ("nothing", "all", "some")[failures % 3], number)
        must_continue(left, committed, expected)
        shutil.rmtree(root)
        if disk.count < number:
            break
        failures, number = failures + 1, number + stride
    assert failures > 80 / stride


@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_process_dies_between_any_two_operations(tmp_path: Path, stride: int) -> None:
    assert int(outcome(start("die", str(tmp_path), str(stride)))) > 60 / stride


def test_no_flipped_bit_is_read_as_data(tmp_path: Path, expected: list[Contents]) -> None:
    whole = tmp_path / "whole"
    for _ in job(opened(whole, OPTIONS)):
        pass
    chance, errors = random.Random(2), 0
    files = [path for path in sorted(whole.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    for number in range(90):
        folder = tmp_path / "broken"
        shutil.copytree(whole, folder)
        path = files[number % len(files)]
        content = bytearray(path.read_bytes())
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        (folder / path.relative_to(whole)).write_bytes(bytes(content))
        try:
            assert contents(opened(folder, OPTIONS)) == expected[-1]
        except Damaged as error:
            errors += 1
            assert error.hint, str(error)  # noqa: PT017 - what is left whole is read as it was
        shutil.rmtree(folder)
    assert errors > 45


def test_a_damaged_record_is_named_and_a_torn_one_is_cut(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    ends = []
    for batch in range(3):
        with shard.transaction([A], Stamp(1, batch)) as tx:
            write(tx, SUMMED, [(1, 0, 1)])
        ends.append(shard.refresh().position.offset)
    (journal,) = (tmp_path / "journal").iterdir()
    content = bytearray(journal.read_bytes())
    with journal.open("ab") as file:
        file.write(content[ends[0] : ends[1] - 5])  # a write that was cut
    again = opened(tmp_path)
    assert found(again.snapshot(), SUMMED) == [(1, 0, 3, 1)]
    with again.transaction([A], Stamp(1, 3)) as tx:
        write(tx, SUMMED, [(1, 0, 1)])
    assert found(opened(tmp_path).snapshot(), SUMMED) == [(1, 0, 4, 1)]
    content[ends[0] + 50] ^= 1
    journal.write_bytes(bytes(content))
    with pytest.raises(Damaged, match=rf"journal/0+1\.log of the state is damaged at byte {ends[0]}") as raised:
        opened(tmp_path).snapshot()
    assert raised.value.hint


def test_readers_see_whole_transactions_while_a_writer_and_maintenance_work(tmp_path: Path) -> None:
    processes = [start("write", str(tmp_path)), start("maintain", str(tmp_path))]
    seen = list(_watched(tmp_path, processes[0]))
    for process in processes:
        outcome(process)
    assert seen == sorted(seen)
    assert len(set(seen)) > 5
    assert opened(tmp_path).stamp(A) == Stamp(1, LAST_BATCH)


def _watched(folder: Path, writer: subprocess.Popen[str]) -> Iterator[int]:
    shard = opened(folder)
    while writer.poll() is None:
        snapshot = shard.snapshot()
        texts = {row[2] for row in found(snapshot, REPLACED, range(20))}
        sums = {row[2] for row in found(snapshot, SUMMED, range(20))}
        assert len(texts) <= 1
        assert {int(str(text)) + 1 for text in texts} == sums
        assert snapshot.lookup(SUMMED, keys_of(range(20))).height in (0, 20)
        yield max((int(str(text)) for text in texts), default=-1)
