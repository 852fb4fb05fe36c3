"""A small job over a store, run again and again with a death at every place it passes.

The job reads, writes and emits what it read, in batches of several steps, and restarts from its checkpoint after a
death. However it dies, the state it leaves and all it ever emitted must be those of a run nobody interrupted.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.contracts.store_entries import Entries
from umbel.state import failpoints
from umbel.state.port import Lasting, Reader, Stamp, Store, Transaction
from umbel.state.urls import open_store

SHARDS = 2
BATCHES = 2
STEPS = 3
STATE_IDS = ("a" * 16, "b" * 16)

Place = tuple[int, int, int]
Emitted = list[tuple[Place, str]]


class Job:
    """The job: a checkpoint, a store, and what went out.

    Args:
        store: where the state is.
        load: reads the checkpoint: the (batch, step) that comes next.
        save: writes it.
        by_step: whether the checkpoint moves after every step, or after whole batches.
        emit: takes what one transaction read.
        batches: how many there are.
    """

    def __init__(
        self,
        store: Store,
        load: Callable[[], tuple[int, int]],
        save: Callable[[tuple[int, int]], None],
        by_step: bool,
        emit: Callable[[Place, str], None],
        batches: int = BATCHES,
    ) -> None:
        self.store, self.load, self.save, self.by_step, self.emit = store, load, save, by_step, emit
        self.batches = batches

    def run(self) -> None:
        """Go on from the checkpoint to the end."""
        batch, step = self.load()
        while batch < self.batches:
            for shard in range(SHARDS):
                place = (batch, step, shard)
                with self.store.transaction(shard, STATE_IDS, Stamp(1, batch, step)) as tx:
                    seen = kernel(tx, place)
                failpoints.reach("before the output is read")
                self.emit(place, seen)
            batch, step = (batch + 1, 0) if step + 1 == STEPS else (batch, step + 1)
            if self.by_step or step == 0:
                self.save((batch, step))
            failpoints.reach("between steps")


def kernel(tx: Transaction, place: Place) -> str:
    """Change some keys by what they hold; return everything that was read."""
    chance = random.Random(repr(place))
    counts, sums = Entries(tx, STATE_IDS[0], "counts"), Entries(tx, STATE_IDS[1], "sums")
    keys = sorted({b"%02d" % chance.randrange(12) for _ in range(6)})
    before = counts.get(keys)
    counts.put(keys, [b"%d" % (int(value or 0) * 3 + 1) for value in before])
    again = keys[:3]
    between = counts.get(again)
    counts.put(again, [value + b"7" for value in between if value is not None])
    counts.delete(keys[3:4])
    found = sums.all()
    total = str(sum(int(value) for value in found.values()) + len(before)).encode()
    sums.put([b"%d" % chance.randrange(5), b"last"], [total, total])
    return repr((before, between, found))


def dump(store: Store) -> str:
    """Return all state there is."""
    return repr([_dump(store, shard) for shard in range(SHARDS)])


def _dump(store: Store, shard: int) -> list[object]:
    with store.snapshot(shard) as reader:
        tables = [rows(reader, state_id, table) for state_id in STATE_IDS for table in ("counts", "sums")]
        return [*tables, store.state_ids(shard), [store.stamp(shard, state_id) for state_id in STATE_IDS]]


def rows(reader: Reader, state_id: str, table: str) -> list[tuple[bytes, bytes]]:
    """Return all entries of a table."""
    return list(Entries(reader, state_id, table).all().items())


@dataclass(frozen=True)
class Expected:
    """What a run without deaths leaves: the state, what it read at each place, and how many failpoints it passed."""

    state: str
    emitted: dict[Place, str]
    places: int


def uninterrupted(batches: int = BATCHES, store: Store | None = None) -> Expected:
    """Run the job on an empty store, by default one in memory."""
    store = store or open_store("memory://", SHARDS)
    position: list[tuple[int, int]] = [(0, 0)]
    emitted: dict[Place, str] = {}
    job = Job(store, lambda: position[-1], position.append, True, emitted.__setitem__, batches)
    with failpoints.armed("*", 0, lambda: None) as passed:
        job.run()
    return Expected(dump(store), emitted, -passed.left)


class Files:
    """The checkpoint and the output of a job, in files, as they would survive a death."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._checkpoint, self._output = directory / "checkpoint", directory / "output"

    def load(self) -> tuple[int, int]:
        if not self._checkpoint.exists():
            return (0, 0)
        batch, step = json.loads(self._checkpoint.read_text())
        return batch, step

    def save(self, position: tuple[int, int]) -> None:
        draft = self._checkpoint.with_suffix(".draft")
        draft.write_text(json.dumps(position))
        draft.rename(self._checkpoint)

    def emit(self, place: Place, seen: str) -> None:
        with self._output.open("a") as output:
            output.write(json.dumps([place, seen]) + "\n")

    def emitted(self) -> Emitted:
        lines = [json.loads(line) for line in self._output.read_text().splitlines()]
        return [((place[0], place[1], place[2]), seen) for place, seen in lines]


def start(work: Callable[[], None]) -> int:
    """Run `work` in a forked process; return the process."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def ended(child: int) -> int:
    """Wait for a process; return the signal that ended it, 0 for none, or raise when it failed."""
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"the job failed with status {os.WEXITSTATUS(status)}")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def printed_by_a_child(work: Callable[[], Any]) -> Any:
    """Return the result of `work` in a forked process: the threads of Polars do not survive a fork of this one."""
    ends, end = os.pipe()
    child = start(lambda: os.write(end, pickle.dumps(work())) and None)
    os.close(end)
    with os.fdopen(ends, "rb") as file:
        data = file.read()
    assert ended(child) == 0
    return pickle.loads(data)


def in_a_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked process to its end; return the signal that ended it."""
    return ended(start(work))


def die_at(url: str, directory: Path, by_step: bool, turns: tuple[int, ...]) -> int:
    """Start the job once per turn, each time dying at that place, then let it end; return how often it died."""
    files = Files(directory)

    def run(turn: int) -> None:
        with failpoints.armed("*", turn, failpoints.die):
            store = open_store(url, SHARDS)
            Job(store, files.load, files.save, by_step, files.emit).run()
            store.close()

    deaths = sum(in_a_child(partial(run, turn)) == signal.SIGKILL for turn in turns)
    in_a_child(partial(run, 0))
    return deaths


def wrongs(expected: Expected, state: str, output: Emitted) -> list[str]:
    """Return how a state and an output differ from what they should be."""
    found = [] if state == expected.state else [f"state: {state}\nnot {expected.state}"]
    found += [f"at {place} read {seen}" for place, seen in output if seen != expected.emitted[place]]
    return found + [
        f"nothing came out at {place}" for place in expected.emitted.keys() - {place for place, _ in output}
    ]


def sweep(url: str, directory: Path, stride: int) -> int:
    """Die at every `stride`-th place, and several times in a row; return the number of deaths.

    Both kinds of checkpoint take turns.
    """
    expected = printed_by_a_child(lambda: uninterrupted(store=open_store(named(url, "expected"), SHARDS)))
    chance = random.Random(0)
    plans = [(turn % 2 == 0, (turn,)) for turn in range(1, expected.places + 1, stride)]
    plans += [(False, tuple(chance.randrange(1, expected.places // 2) for _ in range(3))) for _ in range(40 // stride)]
    deaths = 0
    for number, (by_step, turns) in enumerate(plans):
        place, store = directory / str(number), named(url, str(number))
        deaths += die_at(store, place, by_step, turns)
        in_a_child(partial(check, expected, store, place))
    return deaths


def named(url: str, name: str) -> str:
    """Return the URL of a store of this name in the folder of another one."""
    parts = urlsplit(url)
    return parts._replace(path=f"{parts.path}/{name}").geturl()


def check(expected: Expected, url: str, directory: Path) -> None:
    """Raise unless the store and the output are what they should be, and all files are whole."""
    store = open_store(url, SHARDS)
    found = wrongs(expected, dump(store), Files(directory).emitted())
    if isinstance(store, Lasting):
        assert min(store.check(shard) for shard in range(SHARDS)) > 0
    if found:
        print("\n".join(found), file=sys.stderr, flush=True)
        raise AssertionError(directory)


def kill_at_random(url: str, directory: Path, kills: int, batches: int) -> int:
    """Kill the job from outside after random times, until it was killed often enough or has ended; then let it end."""
    expected = printed_by_a_child(partial(uninterrupted, batches))
    files, chance, deaths = Files(directory), random.Random(0), 0

    def run() -> None:
        Job(open_store(url, SHARDS), files.load, files.save, False, files.emit, batches).run()

    for _ in range(kills):
        child = start(run)
        time.sleep(chance.uniform(0.01, 0.4))
        os.kill(child, signal.SIGKILL)
        deaths += ended(child) == signal.SIGKILL
    in_a_child(run)
    in_a_child(partial(check, expected, url, directory))
    return deaths


def write_alike(url: str, batches: int) -> None:
    """Write, batch by batch, the number of the batch under every key; half of them in a second put."""
    store = open_store(url, 1)
    keys = [b"%04d" % number for number in range(2000)]
    for batch in range(batches):
        with store.transaction(0, ["o"], Stamp(1, batch)) as tx:
            for part in (keys[:1000], keys[1000:]):
                Entries(tx, "o").put(part, [b"%d" % batch] * 1000)
    store.close()


if __name__ == "__main__":
    task, url, *rest = sys.argv[1:]
    if task == "sweep":
        print(sweep(url, Path(rest[0]), int(rest[1])))
    elif task == "random":
        print(kill_at_random(url, Path(rest[0]), *map(int, rest[1:])))
    else:
        write_alike(url, int(rest[0]))
