"""Several server processes append to one log and are killed; nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from umbel.log.reading import IngestReader
from umbel.log.records import LogRecord

WRITER = Path(__file__).parent / "appending_process.py"


def start(root: Path, name: str) -> subprocess.Popen[bytes]:
    with (root / f"{name}.acknowledged").open("wb") as out:
        return subprocess.Popen([sys.executable, str(WRITER), str(root), name], stdout=out, stderr=subprocess.PIPE)


def acknowledged(root: Path) -> dict[str, int]:
    lines = [line for path in root.glob("*.acknowledged") for line in path.read_text().splitlines(keepends=True)]
    return {name: int(row) for name, row in (line.split() for line in lines if line.endswith("\n"))}


def wait_for(root: Path, name: str, lines: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while (root / f"{name}.acknowledged").read_bytes().count(b"\n") < lines:
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def read(reader: IngestReader, found: list[LogRecord], limit: int | None) -> None:
    start = reader.start() if not found else read.position  # type: ignore[attr-defined]
    ranges, read.position = reader.plan(start, rows=limit)  # type: ignore[attr-defined]
    for part in ranges:
        found += reader.open(part)


def test_processes_killed_at_random(tmp_path: Path) -> None:
    chance = random.Random(1)
    running = {name: start(tmp_path, name) for name in ("a0", "b0", "c0")}
    reader, found = IngestReader(tmp_path, "w", "e", split_bytes=5000), list[LogRecord]()
    for generation in range(1, 6):
        victim = chance.choice(sorted(running))
        wait_for(tmp_path, victim, chance.randrange(50, 400), running[victim])
        running[victim].send_signal(signal.SIGKILL)
        running.pop(victim).communicate()
        read(reader, found, chance.choice([None, 100]))  # a reader beside the writers
        name = f"{victim[0]}{generation}"
        running[name] = start(tmp_path, name)
    for name, process in running.items():
        wait_for(tmp_path, name, 20, process)
        process.kill()
        process.communicate()
    for _ in range(10_000):
        before = len(found)
        read(reader, found, None)
        if len(found) == before:
            break
    names = [record.entry.payload.decode() for record in found]
    assert max(Counter(names).values()) == 1
    rows = {name: record.row for name, record in zip(names, found, strict=True)}
    report = acknowledged(tmp_path)
    assert len(report) > 300
    assert report.items() <= rows.items()
    assert [record.row for record in found] == list(range(0, 2 * len(found), 2))
    assert len({record.offset for record in found}) < len(found)  # several segments
    for sender in {name.rpartition(".")[0] for name in names}:
        mine = [int(name.rpartition(".")[2]) for name in names if name.rpartition(".")[0] == sender]
        assert mine == list(range(len(mine)))
