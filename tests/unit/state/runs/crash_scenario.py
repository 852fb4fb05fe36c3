"""A job over a shard, run in processes that die between file operations, and the check of what they leave.

Children are forked by a process that has never used Polars: its threads do not survive a fork.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.contracts.store_scenario import in_a_child
from tests.unit.state.runs.tables import COLLECTED, REPLACED, SUMMED, TABLES, A, B, found, opened, write
from umbel.state import failpoints
from umbel.state.port import Stamp
from umbel.state.runs.maintenance import maintain
from umbel.state.runs.shard import Shard, ShardOptions

BATCHES, LAST_BATCH = 3, 60
OPTIONS = ShardOptions(journal_bytes=3000, flush_bytes=1, part_rows=100, fan=2)
Contents = dict[str, list[tuple[object, ...]]]


def job(shard: Shard, start: int = 0) -> Iterator[int]:
    """Write batches with maintenance between them; yield each batch after its commit."""
    for batch in range(start, BATCHES):
        with shard.transaction([A, B], Stamp(1, batch)) as tx:
            seen = len(found(tx, SUMMED)) + len(found(tx, REPLACED))
            write(tx, REPLACED, [(key, batch, f"{seen}") for key in range(6)], [(key, batch - 1) for key in (1, 2)])
            write(tx, SUMMED, [(key, 0, seen) for key in range(4)])
            write(tx, COLLECTED, [(key, 0, "x") for key in range(4)], [(9, 0)])
        yield batch
        maintain(shard)


def contents(shard: Shard) -> Contents:
    """Return what is in all tables."""
    snapshot = shard.snapshot()
    return {table: found(snapshot, table) for table in TABLES}


def must_continue(folder: Path, committed: int, expected: list[Contents]) -> None:
    """Raise unless what is left is after the committed batch or the next one, and the job ends as ever from there."""
    shard = opened(folder, OPTIONS)
    seen = contents(shard)
    assert seen in expected[committed : committed + 2], (committed, seen)
    for _ in job(shard, committed):
        pass
    again = opened(folder, OPTIONS)
    assert contents(again) == expected[-1]
    assert again.check() > 0


def uninterrupted(folder: Path) -> list[Contents]:
    """Return what is there before the first batch and after each one."""
    shard = opened(folder, OPTIONS)
    return [contents(shard), *(contents(shard) for _ in job(shard))]


def die_everywhere(folder: Path, stride: int) -> int:
    """Die at every `stride`-th failpoint and check what is left; return the number of deaths."""
    deaths, number = 0, 1
    while True:
        root, report = folder / f"{number}", folder / f"{number}.batches"

        def die(root: Path = root, report: Path = report, number: int = number) -> None:
            with failpoints.armed("*", number, failpoints.die), report.open("ab", buffering=0) as batches:
                for _ in job(opened(root, OPTIONS)):
                    batches.write(b".")

        def check(root: Path = root, report: Path = report, number: int = number) -> None:
            must_continue(root, report.stat().st_size, uninterrupted(folder / f"{number}.expected"))

        death = in_a_child(die)
        assert death in (0, signal.SIGKILL)
        assert in_a_child(check) == 0
        if not death:
            return deaths
        deaths, number = deaths + 1, number + stride


def write_alike(folder: Path) -> None:
    """Write the number of the batch under every key, batch by batch."""
    shard = opened(folder)
    for batch in range(LAST_BATCH + 1):
        with shard.transaction([A, B], Stamp(1, batch)) as tx:
            write(tx, REPLACED, [(key, 0, f"{batch}") for key in range(20)])
            write(tx, SUMMED, [(key, 0, 1) for key in range(20)])


def maintain_all_the_time(folder: Path) -> None:
    """Maintain the shard until the last batch is written."""
    shard = opened(folder)
    while shard.stamp(A) != Stamp(1, LAST_BATCH):
        maintain(shard)


if __name__ == "__main__":
    task, place, *rest = sys.argv[1:]
    if task == "die":
        print(die_everywhere(Path(place), int(rest[0])))
    elif task == "write":
        write_alike(Path(place))
    else:
        maintain_all_the_time(Path(place))
