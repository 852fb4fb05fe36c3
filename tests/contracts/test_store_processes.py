"""What a store whose state outlives the process must do: survive deaths, and show others only what is committed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.conftest import FLUSHED, LASTING, name_of, url_of
from tests.contracts.store_entries import Entries
from umbel.state.description import StoreDescription
from umbel.state.port import Stamp, Store
from umbel.state.urls import open_store

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=LASTING, ids=name_of)
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return url_of(request, tmp_path, monkeypatch)


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start the scenario in a process of its own."""
    command = [sys.executable, "-m", "tests.contracts.store_scenario", *arguments]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, stdout=-1, stderr=-1, text=True)


def outcome(process: subprocess.Popen[str]) -> int:
    """Wait for a scenario and return the number it prints."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return int(out)


@pytest.mark.parametrize("stride", [61, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_process_that_dies_at_any_place_ends_the_same(url: str, tmp_path: Path, stride: int) -> None:
    assert outcome(start("sweep", url, str(tmp_path / "files"), str(stride))) > 80 / stride


@pytest.mark.parametrize(
    "url",
    [each if each == FLUSHED else pytest.param(each, marks=pytest.mark.nightly) for each in LASTING],
    ids=map(name_of, LASTING),
    indirect=True,
)
@pytest.mark.parametrize(
    ("kills", "batches", "least"), [(8, 25, 4), pytest.param(15, 40, 6, marks=pytest.mark.nightly)]
)
def test_a_process_killed_at_random_ends_the_same(
    url: str, tmp_path: Path, kills: int, batches: int, least: int
) -> None:
    assert outcome(start("random", url, str(tmp_path / "files"), str(kills), str(batches))) >= least


@pytest.mark.parametrize("batches", [30, pytest.param(60, marks=pytest.mark.nightly)])
def test_other_processes_see_whole_transactions_and_nothing_else(url: str, batches: int) -> None:
    writer = start("write", url, str(batches))
    seen = list(_watched(url, writer))
    _, err = writer.communicate(timeout=60)
    assert writer.returncode == 0, err
    assert seen == sorted(seen)
    assert len(set(seen)) > 2, "the reader saw the writer at work"
    store = open_store(url, 1)
    with store.snapshot(0) as reader:
        assert set(Entries(reader, "o").all().values()) == {b"%d" % (batches - 1)}
    store.close()


def _watched(url: str, writer: subprocess.Popen[str]) -> Iterator[int]:
    """Read all the time while the writer runs; yield the batch each snapshot shows."""
    store = open_store(url, 1)
    while writer.poll() is None:
        with store.snapshot(0) as reader:
            entries = Entries(reader, "o").all()
        batches = {int(value) for value in entries.values()}
        assert len(batches) <= 1
        assert len(entries) in (0, 2000)
        yield batches.pop() if batches else -1
    store.close()


def test_a_store_that_is_made_while_a_reader_opens_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = StoreDescription.is_made, list[Store]()

    def is_made(description: StoreDescription) -> bool:
        if not made:  # the reader has not found the shard, and asks whether it must exist
            made.append(open_store(url, 1))
            with made[0].transaction(0, ["o"], Stamp(1, 1)) as tx:
                Entries(tx, "o").put([b"a"], [b"1"])
        return real(description)

    monkeypatch.setattr(StoreDescription, "is_made", is_made)
    reader = open_store(url, 1)
    with reader.snapshot(0) as snapshot:
        assert Entries(snapshot, "o").all() == {b"a": b"1"}
    for store in (reader, *made):
        store.close()


def test_state_is_there_when_the_store_is_opened_again(url: str) -> None:
    store = open_store(url, 3)
    with store.transaction(2, ["o"], Stamp(4, 5, 6)) as tx:
        Entries(tx, "o").put([b"a"], [b"1"])
    store.close()
    again = open_store(url, 3)
    assert again.stamp(2, "o") == Stamp(4, 5, 6)
    with again.snapshot(2) as reader:
        assert Entries(reader, "o").all() == {b"a": b"1"}
    with again.transaction(2, ["o"], Stamp(4, 5, 6)) as tx:
        assert Entries(tx, "o").get([b"a"]) == [None]
    again.close()
