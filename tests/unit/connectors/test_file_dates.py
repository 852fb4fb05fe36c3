"""Dates in the paths of files: one from the future must not hide those of today."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.unit.connectors.reading import Read, read
from umbel.connectors import S3, path_dates
from umbel.connectors.file_source import FileSource
from umbel.definitions.arguments import ReadOptions
from umbel.types.dtypes import Int

SCHEMA = {"n": Int()}
HOUR = 3_600_000_000


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UMBEL_BUCKETS", f"file://{tmp_path}")
    return tmp_path / "lake"


def put(lake: Path, days: int, name: str, n: int) -> None:
    day = datetime.now(UTC) + timedelta(days=days)
    path = lake / day.strftime(f"c/%Y/%m/%d/{name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"n":{n}}}\n')


def reader(folder: Path) -> FileSource:
    connector = S3(name="l").bucket("lake", path="c/%Y/%m/%d/*.json", format="json", spread="1h")
    described = {"directory": folder, "key": "D@1/0#x", "dataset": "D", "cdc": "append", "every": 1, "disorder": HOUR}
    made = connector.reader_of(ReadOptions(**described, columns=None, keys=(), is_keyed=False))  # type: ignore[arg-type]
    assert isinstance(made, FileSource)
    return made


def taken(found: Read) -> list[int]:
    return [value[0] for value in found.values()]


@pytest.mark.parametrize("alone", [False, True])
def test_a_file_from_the_future_does_not_hide_those_of_today(
    lake: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, alone: bool
) -> None:
    """Nothing was read any more, without a word."""
    if not alone:
        put(lake, 0, "a", 1)
    put(lake, 13_000, "misnamed", 2)
    source = reader(tmp_path)
    with caplog.at_level(logging.WARNING, "umbel.work"):
        found = read(source, SCHEMA)
    assert "misnamed.json: its date is in the future" in caplog.text
    put(lake, 0, "b", 3)
    put(lake, 1, "c", 4)
    read(reader(tmp_path), SCHEMA, into=found)
    assert sorted(taken(found)) == ([2, 3, 4] if alone else [1, 2, 3, 4])
    put(lake, -1, "d", 5)
    again = reader(tmp_path)
    read(again, SCHEMA, into=found)
    assert (max(taken(found)), again.trouble) == (5, "")


def test_tomorrow_is_the_newest_date(lake: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(lake, 1, "a", 1)
    with caplog.at_level(logging.WARNING, "umbel.work"):
        found = read(reader(tmp_path), SCHEMA)
    put(lake, -20, "late", 2)
    read(reader(tmp_path), SCHEMA, into=found)
    assert (taken(found), caplog.text) == ([1], "")


def test_a_position_of_an_older_version_is_reported_and_reads_nothing_twice(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(lake, 0, "a", 1)
    put(lake, 13_000, "misnamed", 2)
    with monkeypatch.context() as patch:
        patch.setattr(path_dates, "AHEAD", timedelta(days=20_000))
        found = read(reader(tmp_path), SCHEMA)
    put(lake, 0, "b", 3)
    source = reader(tmp_path)
    read(source, SCHEMA, into=found)
    assert taken(found) == [1, 2]
    assert "misnamed.json' is in the future" in source.trouble
