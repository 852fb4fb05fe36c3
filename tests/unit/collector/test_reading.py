"""Readers of a collector's events: one that is too deep, stored by an older version, holds up no other."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.collector.test_bodies import nested
from umbel.cli.collect import group
from umbel.collector import forwarding as forwarding_module
from umbel.collector.backlog import waiting_in
from umbel.collector.forwarding import Forwarder, StreamForwarding, is_forwarded
from umbel.collector.settings import CollectorSettings, KafkaTarget
from umbel.errors import Damaged
from umbel.log.collected import SYSTEM
from umbel.log.ingest import IngestLog
from umbel.log.readers import note_position, positions
from umbel.log.reading import IngestReader
from umbel.log.segments import ORIGIN

EVENTS = [b'{"a":1}', nested(sys.getrecursionlimit()), b'{"b":2}']


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with closing(IngestLog(tmp_path, SYSTEM, "clicks")) as log:
        log.append_blocking(b"[" + b",".join(EVENTS) + b"]", len(EVENTS))
    return tmp_path


def test_cat_prints_it(folder: Path) -> None:
    found = CliRunner().invoke(group, ["cat", "clicks", "--dir", str(folder)])
    assert (found.exit_code, found.stdout_bytes.splitlines()) == (0, EVENTS)


def test_cat_names_its_output_when_that_is_full(folder: Path) -> None:
    command = [sys.executable, "-m", "umbel", "collect", "cat", "clicks", "--dir", str(folder)]
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    report = "error standard output: No space left on device\n  hint: free some disk space\n"
    assert (found.returncode, found.stderr) == (2, report)


def test_cat_prints_what_is_behind_a_damaged_event(tmp_path: Path) -> None:
    with closing(IngestLog(tmp_path, SYSTEM, "clicks")) as log:
        for number in range(4):
            log.append_blocking(b'[{"n":%d}]' % number, 1)
        (segment,) = log.directory.glob("*.seg")
    segment.write_bytes(segment.read_bytes().replace(b'{"n":1}', b'{"n":7}'))
    runs = [CliRunner().invoke(group, ["cat", "clicks", "--dir", str(tmp_path), "--after", n]) for n in ("0", "2")]
    assert [each.stdout for each in runs] == ['{"n":0}\n{"n":2}\n{"n":3}\n', '{"n":2}\n{"n":3}\n']
    assert isinstance(runs[0].exception, Damaged)
    assert "row 1" in str(runs[0].exception)
    assert runs[1].exit_code == 0


def test_it_is_forwarded(folder: Path) -> None:
    reader = IngestReader(folder, SYSTEM, "clicks")
    forwarding = StreamForwarding(CollectorSettings(folder, to=KafkaTarget("127.0.0.1:1", "t")), "clicks", "x" * 16)
    assert forwarding._events(reader.start(), reader.end(), 1 << 20) == (EVENTS, [])


def test_forwarding_ends_while_kafka_is_looked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, looked, end = threading.Event(), threading.Event(), threading.Event()

    def look(*_: object) -> int:
        looked.set()
        end.wait()
        return 0

    monkeypatch.setattr(forwarding_module, "record_limit", look)
    monkeypatch.setattr(forwarding_module, "LONGEST_WAIT", threading.TIMEOUT_MAX)
    forwarder = Forwarder(CollectorSettings(folder, to=KafkaTarget("127.0.0.1:1", "t")))
    thread = threading.Thread(target=forwarder.run, args=(stop,), daemon=True)
    thread.start()
    assert looked.wait(60)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    end.set()


def test_all_is_forwarded_when_kafka_has_it(folder: Path) -> None:
    reader = IngestReader(folder, SYSTEM, "clicks")
    assert not is_forwarded(reader.directory)
    note_position(reader.directory, "dataset", "A dataset", reader.start())
    note_position(reader.directory, "kafka", "Kafka", reader.start())
    assert not is_forwarded(reader.directory)
    note_position(reader.directory, "kafka", "Kafka", reader.end())
    assert is_forwarded(reader.directory)
    assert is_forwarded(folder / "of a stream without events")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"title": "x"}', b"\xff"])
def test_a_reader_whose_position_is_damaged_holds_back_all_events(folder: Path, text: bytes) -> None:
    reader = IngestReader(folder, SYSTEM, "clicks")
    note_position(reader.directory, "kafka", "Kafka", reader.end())
    assert waiting_in(reader.directory).rows == 0
    (path,) = (reader.directory / "readers").iterdir()
    path.write_bytes(text)
    assert positions(reader.directory)["kafka"].position == ORIGIN
    assert waiting_in(reader.directory).rows == len(EVENTS)
    forgotten = CliRunner().invoke(group, ["forget", "clicks", "kafka", "--dir", str(folder)])
    assert (forgotten.exit_code, positions(reader.directory)) == (0, {})
