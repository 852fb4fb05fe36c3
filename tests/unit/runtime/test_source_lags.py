"""The lag of sources: recorded by the planner, read by metrics, `umbel doctor` and `umbel status`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from typer.testing import CliRunner

from tests.deployed import Deployed
from umbel.cli.main import app
from umbel.connectors import Files, source
from umbel.connectors.lag import SourceLag
from umbel.connectors.polling import stop_polling
from umbel.datasets import dataset
from umbel.runtime import source_lags as module
from umbel.runtime.batch import drain
from umbel.runtime.dead_letters import KINDS, OTHER, by_kind
from umbel.runtime.source_lags import FILE, MeasuredLag, source_lags
from umbel.types.raw import REJECTS

__owner__ = "shop@example.com"


def files(folder: Path) -> object:
    @source(Files(name="in", folder=str(folder)).path("*.ndjson"), disorder="30d", cdc="append", every="1s")
    @dataset
    class Rows:
        n: int
        t: datetime

    return Rows


def lines(numbers: range) -> str:
    return "".join(json.dumps({"n": n, "t": "2024-01-01"}) + "\n" for n in numbers)


def test_files_are_behind_until_they_are_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY", 0.0)
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.ndjson").write_text(
        lines(range(10)) + '{"n": null, "t": "2024-01-01"}\n{"n": "x", "t": "2024-01-01"}\n'
    )
    made = Deployed(tmp_path / "umbel")
    try:
        made.commit([files(folder)])
        drain(made.deployment, 1)
        (first,) = source_lags(made.deployment.directory)
        assert (first.lag.bytes, first.trouble) == ((folder / "a.ndjson").stat().st_size, "")
        assert first.source.startswith("Rows@1/0#")
        deadline = time.monotonic() + 60
        while source_lags(made.deployment.directory)[0].lag.is_behind:
            assert time.monotonic() < deadline
            drain(made.deployment)
            time.sleep(0.1)
        counts = {name: count for (_, name), count in made.deployment.catalog.counts().items() if "reason" in name}
        assert counts == {"dead_reason:null": 1, "dead_reason:wrong type": 1}
        result = CliRunner().invoke(app, ["status", "--dir", str(tmp_path / "umbel")])
        assert "lag of Rows@1/0: " in result.output
        assert "up to date" in result.output
        assert "dead letters of Rows: 1 wrong type" in result.output
    finally:
        made.close()
        stop_polling(tmp_path)


def test_a_source_that_is_behind_has_a_remedy(tmp_path: Path) -> None:
    slow = MeasuredLag("A@1/0#x", "Kafka 'k', topic 't'", SourceLag(rows=5, seconds=100.0), "", 1.0)
    gone = MeasuredLag("B@1/0#x", "Postgres 'p'", SourceLag(), "no route to host", 1.0)
    (tmp_path / FILE).write_text(json.dumps([asdict(each) for each in (slow, gone)]))
    assert source_lags(tmp_path) == [slow, gone]
    assert str(slow) == "Kafka 'k', topic 't': 5 rows, 100.0 s behind"
    assert "task slots and cores" in slow.remedy
    assert str(gone) == "Postgres 'p': cannot be read: no route to host"
    assert "can be reached" in gone.remedy


@pytest.mark.parametrize("content", [None, b"", b"{", b'[{"source": 1}]', b"[[]]", b"\xff\xfe"])
def test_a_damaged_record_is_no_record(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    assert source_lags(tmp_path) == []


def test_a_source_that_fails_to_tell_stops_no_batch(tmp_path: Path) -> None:
    class Failing:
        key, title, trouble = "A@1/0#x", "custom", ""

        def lag(self, _: object) -> SourceLag:
            raise RuntimeError("no idea")

    module.LagRecord(tmp_path).note([Failing(), object()], {})
    (found,) = source_lags(tmp_path)
    assert found.trouble == "RuntimeError: no idea"
    module.LagRecord(tmp_path / "missing").note([Failing()], {})


def test_a_source_that_cannot_be_read_is_in_trouble_though_it_can_be_planned(tmp_path: Path) -> None:
    class Planned:
        key, title, trouble = "A@1/0#x", "Kafka 'k'", ""
        reading = SimpleNamespace(trouble="")

        def lag(self, _: object) -> SourceLag:
            return SourceLag(3, None, 1.0)

    module.LagRecord(tmp_path).note([Planned()], {}, away={Planned.key})
    (found,) = source_lags(tmp_path)
    assert "stopped answering while it was read" in str(found)
    assert found.is_bad
    module.LagRecord(tmp_path).note([Planned()], {})
    assert not source_lags(tmp_path)[0].is_bad


def test_lags_add_up() -> None:
    assert SourceLag(1, None, 2.0) + SourceLag(None, 5, 3.0) == SourceLag(1, 5, 5.0)
    assert str(SourceLag()) == "unknown"
    assert not SourceLag(0, 0, 0.0).is_behind


def test_reasons_have_fixed_kinds() -> None:
    """However many texts there are; each row counts once for each kind."""
    reasons = [
        (0, "a", "expected int, got 'null hypothesis 17'"),
        (0, "b", "the column is missing, expected int"),
        (1, "", "transform: step 1 of 'a': ValueError: is missing"),
        (2, "t", "event time 2099-01-01 is ahead of 2024, the latest a live source may have when it is processed"),
        (3, "", "the table was truncated: the dataset has no key fields"),
        (4, "", "who knows"),
        *((row, "a", f"expected int, got 'v{row}'") for row in range(10, 1000)),
    ]
    found = by_kind(pl.DataFrame(reasons, REJECTS, orient="row"))
    assert {name.partition(":")[2] for name in found} <= {*KINDS, OTHER}
    assert found["dead_reason:wrong type"] >= 990
    assert found["dead_reason:transformation"] == found["dead_reason:ahead of time"] == 1
    assert found["dead_reason:missing column"] == found["dead_reason:not applicable"] == found["dead_reason:other"] == 1
