"""What is special about the store in files; the rest is in the contract suite."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from tests.contracts.store_entries import Entries
from tests.contracts.store_scenario import in_a_child
from umbel.errors import Damaged, InvalidValue
from umbel.state.file import FileStore
from umbel.state.port import Stamp
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.shard import ShardOptions
from umbel.state.tables import State
from umbel.state.urls import open_store

ROOT = Path(__file__).parents[3]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def store(place: Path) -> Iterator[FileStore]:
    opened = FileStore(place, 4, is_synced=False)
    yield opened
    opened.close()


def put(store: FileStore, batch: int, value: bytes, shard: int = 0) -> None:
    with store.transaction(shard, ["o"], Stamp(1, batch)) as tx:
        Entries(tx, "o").put([b"k"], [value])


def stored(store: FileStore, shard: int = 0) -> bytes | None:
    with store.snapshot(shard) as reader:
        return Entries(reader, "o").get([b"k"])[0]


def test_reading_makes_no_files(store: FileStore, place: Path) -> None:
    assert stored(store) is None
    assert store.state_ids(3) == []
    assert store.stamp(2, "o") is None
    assert [(size.entries, size.size) for size in store.sizes()] == [(0, 0)] * 4
    store.drop("o")
    assert store.check(1) == 0
    assert store.identity is None
    assert not place.exists()


def test_all_shards_are_made_at_the_first_write(store: FileStore, place: Path) -> None:
    put(store, 1, b"1", shard=2)
    shards = [f"shard-{number:03d}" for number in range(4)]
    assert sorted(file.name for file in place.iterdir()) == [*shards, "store.json"]
    report = json.loads((place / "store.json").read_text())
    assert report == {"format": 5, "shards": 4, "identity": store.identity}


def test_stores_of_one_directory_share_its_files(store: FileStore, place: Path) -> None:
    other = FileStore(place / ".." / "x" / ".." / "db", 4)
    assert stored(other) is None
    put(store, 1, b"1")
    assert stored(other) == b"1"
    put(other, 2, b"2")
    other.close()
    other.close()
    assert stored(store) == b"2"


def test_a_directory_that_was_removed_is_no_empty_store(store: FileStore, place: Path) -> None:
    put(store, 1, b"old")
    shutil.rmtree(place)
    with pytest.raises(Damaged, match="missing"):
        stored(store)
    with pytest.raises(Damaged, match="missing"):
        put(store, 2, b"new")
    assert stored(FileStore(place, 4)) is None


# damage


def filled(place: Path) -> FileStore:
    """Return a store with runs, final rows and pending ones, written in several batches."""
    store = FileStore(place, 2, ShardOptions(fan=3), is_synced=False)
    for batch in range(6):
        with store.transaction(1, ["a", "b"], Stamp(1, batch)) as tx:
            Entries(tx, "a").put([b"%d" % key for key in range(batch, 40)], [b"%d" % batch] * (40 - batch))
            Entries(tx, "b").put([b"k"], [b"v"])
        if batch < 4:
            maintain(store._shards[1], flush_bytes=1)
    return store


def contents(store: FileStore) -> list[dict[bytes, bytes]]:
    with store.snapshot(1) as reader:
        return [Entries(reader, state_id).all() for state_id in ("a", "b")]


DAMAGES: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "overwritten": lambda path: path.write_bytes(b"nothing of ours" * 100),
}
LASTING = ("runs", "manifest", "journal")


@pytest.mark.parametrize(
    ("folder", "damage"),
    [(folder, damage) for folder in LASTING for damage in DAMAGES if (folder, damage) != ("manifest", "deleted")],
)
def test_damaged_files_are_reported_with_a_remedy(place: Path, folder: str, damage: str) -> None:
    filled(place)
    files = sorted((place / "shard-001" / folder).iterdir())
    for path in files if folder == "runs" else files[-1:]:
        DAMAGES[damage](path)
    with pytest.raises(Damaged) as raised:
        contents(FileStore(place, 2))
    assert "restore umbel's folder" in str(raised.value.hint)
    with pytest.raises(Damaged):
        FileStore(place, 2).check(1)
    with pytest.raises(Damaged), FileStore(place, 2).transaction(1, ["a"], Stamp(1, 9)) as tx:
        Entries(tx, "a").all()
    assert FileStore(place, 2).check(0) == 0, "the other shard is whole"


def test_without_its_last_manifest_a_shard_is_read_by_the_one_before(place: Path) -> None:
    """The journal is retained for as long as the last two manifests need it."""
    whole = contents(filled(place))
    *_, last = sorted((place / "shard-001" / "manifest").iterdir())
    last.unlink()
    assert contents(FileStore(place, 2)) == whole


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_is_never_served(place: Path, tmp_path: Path, seed: int) -> None:
    whole, chance, detected = contents(filled(place)), random.Random(seed), 0
    files = [path for path in sorted(place.rglob("*")) if path.is_file() and path.suffix not in (".lock", ".json")]
    for _ in range(20):
        broken = tmp_path / "broken"
        shutil.copytree(place, broken)
        path = broken / chance.choice(files).relative_to(place)
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        try:
            assert contents(FileStore(broken, 2)) == whole
        except Damaged:
            detected += 1
        shutil.rmtree(broken)
    assert detected > 2


def test_a_shard_that_is_gone_is_not_an_empty_one(place: Path) -> None:
    for again in (False, True):
        store = FileStore(place, 3) if again else FileStore(place, 3, is_synced=False)
        if not again:
            put(store, 1, b"v", shard=1)
        shutil.rmtree(place / "shard-001", ignore_errors=True)
        with pytest.raises(Damaged, match="missing"), store.snapshot(1) as reader:
            Entries(reader, "o").get([b"k"])
        with pytest.raises(Damaged, match="missing"), store.transaction(1, ["o"], Stamp(1, 2)):
            pass
        with pytest.raises(Damaged, match="missing"):
            store.stamp(1, "o")
        with pytest.raises(Damaged, match="missing"):
            store.drop("o")
        assert stored(store, 2) is None


def test_another_store_is_refused(tmp_path: Path) -> None:
    one, two = FileStore(tmp_path / "one", 1), FileStore(tmp_path / "two", 1)
    put(one, 1, b"1")
    assert one.identity
    two.must_be(one.identity)
    for _ in range(2):
        with pytest.raises(Damaged, match=r"there is no .*/two/store\.json"), two.snapshot(0):
            pass
        with pytest.raises(Damaged, match=r"there is no .*/two/store\.json"), two.transaction(0, ["o"], Stamp(1, 1)):
            pass
    made = FileStore(tmp_path / "two", 1)
    put(made, 1, b"2")
    made.must_be(one.identity)
    uses: list[Callable[[], object]] = [
        lambda: stored(made),
        lambda: put(made, 2, b"3"),
        lambda: made.stamp(0, "o"),
        lambda: made.state_ids(0),
        lambda: made.check(0),
        lambda: made.drop("o"),
        lambda: made.sizes(),
    ]
    for use in uses:
        with pytest.raises(Damaged, match="not the one that the catalog tells of"):
            use()
    one.must_be(one.identity)
    assert stored(one) == b"1"


# processes and threads


def test_a_fork_reads_and_writes_while_a_thread_has_a_transaction_open(place: Path) -> None:
    program = """
import sys, threading
from tests.unit.state.test_file_store import FileStore, fork_beside_a_transaction
fork_beside_a_transaction(FileStore(sys.argv[1], 1, is_synced=False))
"""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", program, str(place)], check=True, cwd=ROOT, env=environment, timeout=120)
    assert stored(FileStore(place, 1)) == b"of the thread"


def fork_beside_a_transaction(store: FileStore) -> None:
    """Fork while a thread writes: the child reads at once, and writes when the transaction has ended."""
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        with store.transaction(0, ["thread"], Stamp(1, 1)):  # of no rows: a fork would have no threads of Polars
            begun.set()
            go_on.wait(300)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(300)
    ends, end = os.pipe()

    def child() -> None:
        assert store.state_ids(0) == []
        os.write(end, b"read")
        put(store, 1, b"of the child")

    waiting = threading.Thread(target=lambda: (os.read(ends, 4), go_on.set()))
    waiting.start()
    assert in_a_child(child) == 0
    thread.join(300)
    waiting.join(300)
    assert store.state_ids(0) == ["o", "thread"]
    put(store, 2, b"of the thread")


def test_a_reader_follows_while_files_are_merged_and_deleted_under_it(place: Path) -> None:
    """Snapshots opened at any time, and read later, see one batch each."""
    writer = FileStore(place, 1, ShardOptions(journal_bytes=2000, flush_bytes=1, fan=2), is_synced=False)
    reader = FileStore(place, 1)
    seen = []
    for batch in range(25):
        with writer.transaction(0, ["o"], Stamp(1, batch)) as tx:
            Entries(tx, "o").put([b"%d" % key for key in range(20)], [b"%d" % batch] * 20)
        with reader.snapshot(0) as view:
            seen.append(view)
        for number in {batch, batch // 2, 0}:
            assert set(Entries(seen[number], "o").all().values()) == {b"%d" % number}
    assert len(list((place / "shard-000" / "runs").iterdir())) < 25
    assert reader.check(0) == writer.check(0)
    writer.close()


def test_what_a_writer_did_after_a_reader_fell_behind_is_read(place: Path) -> None:
    options = ShardOptions(journal_bytes=1000, flush_bytes=1, fan=2)
    writer, reader = FileStore(place, 1, options, is_synced=False), FileStore(place, 1)
    assert stored(reader) is None
    for batch in range(30):
        put(writer, batch, b"%d" % batch)
        if batch % 13 == 12:
            assert stored(reader) == b"%d" % batch
    with writer.transaction(0, ["o"], Stamp(1, 29)) as tx:
        Entries(tx, "o").put([b"k"], [b"again"])
    assert stored(reader) == b"again"
    writer.drop("o")
    assert stored(reader) is None
    put(writer, 0, b"anew")
    assert stored(reader) == b"anew"
    writer.close()


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_reader_that_missed_a_drop_reads_the_columns_written_after_it(place: Path, is_flushed: bool) -> None:
    writer, reader = FileStore(place, 1, is_synced=False), FileStore(place, 1)
    put(writer, 0, b"1")
    assert stored(reader) == b"1"
    writer.drop("o")
    keys = pl.Series("_key", [b"k"])
    for batch in range(3):
        with writer.transaction(0, ["o"], Stamp(1, batch)) as tx:
            State(tx, "o").table("t", {"n": pl.Int64}).replace(keys, pl.DataFrame({"_key": keys, "n": [batch]}))
        if is_flushed:
            maintain(writer._shards[0], flush_bytes=1)
    for store in (writer, reader, FileStore(place, 1)):
        with store.snapshot(0) as view:
            assert State(view, "o").table("t", {"n": pl.Int64}).get(keys).rows() == [(b"k", 2)]


def test_a_spawned_worker_opens_its_own(place: Path) -> None:
    store = FileStore(place, 1, is_synced=False)
    put(store, 0, b"1")
    program = "import sys; from tests.unit.state.test_file_store import _spawned; _spawned(sys.argv[1])"
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", program, str(place)], check=True, cwd=ROOT, env=environment, timeout=120)
    assert stored(store) == b"2"


def _spawned(directory: str) -> None:
    store = FileStore(directory, 1, is_synced=False)
    assert stored(store) == b"1"
    put(store, 1, b"2")


def test_threads_of_one_process_write_in_turn(place: Path) -> None:
    store = FileStore(place, 1, ShardOptions(flush_bytes=1), is_synced=False)
    batches, turn = iter(range(1000)), threading.Lock()

    def count() -> None:
        for _ in range(10):
            with turn, store.transaction(0, ["o"], Stamp(1, next(batches))) as tx:
                (before,) = Entries(tx, "o").get([b"k"])
                Entries(tx, "o").put([b"k"], [b"%d" % (int(before or 0) + 1)])

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert stored(store) == b"40"
    store.close()


def test_a_store_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ("file", "file/below"):
        with pytest.raises(InvalidValue, match="is not a directory"):
            open_store(f"file://{tmp_path}/{path}", 1)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.access  # root may write everywhere

    def access(path: Path, mode: int) -> bool:
        return not (Path(path) == tmp_path and mode & os.W_OK) and real(path, mode)

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(InvalidValue, match="cannot be written"):
        open_store(f"file://{tmp_path}/db", 1)


def test_another_thread_may_find_a_new_store_made(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads look into the catalog for a store that is not made yet, until one sees that it is."""
    store.may_be("own", lambda: None)
    now = time.monotonic() + 10

    def clock() -> float:
        store._noted = None  # as the other thread does it
        return now

    monkeypatch.setattr("umbel.state.durable.time.monotonic", clock)
    assert stored(store) is None
