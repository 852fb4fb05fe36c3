"""Segments of another log: they are found and refused; those of older versions and repaired ones are read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.deployed import Deployed
from tests.sales import sales
from tests.selling import Shop
from umbel.errors import Damaged
from umbel.log.ingest import IngestLog
from umbel.log.inspection import inspect, mend
from umbel.log.reading import IngestReader
from umbel.log.segments import ANY_LOG, LogPosition, Segment, preamble, segments_in
from umbel.runtime.batch import drain
from umbel.runtime.recovery.check import check


def written(root: Path, rows: int, sign: bytes = b"1", segment_bytes: int = 300) -> IngestReader:
    """Return the reader of a log to which rows were appended, of some segments."""
    log = IngestLog(root, "w", "e", segment_bytes=segment_bytes)
    for _ in range(rows):
        log.append_blocking(b"[%b]" % sign, 1)
    log.close()
    return IngestReader(root, "w", "e")


def read(reader: IngestReader, start: LogPosition | None = None) -> tuple[list[bytes], LogPosition]:
    ranges, end = reader.plan(start or reader.start())
    return [each.entry.payload for part in ranges for each in reader.open(part)], end


def test_another_log_of_the_same_size_is_found_and_refused(tmp_path: Path) -> None:
    mine, other = written(tmp_path / "one", 5), written(tmp_path / "two", 5, b"2")
    _, end = read(mine)
    assert LogPosition.from_json(end.to_json()).log == end.log not in (0, ANY_LOG)
    assert not inspect(mine.directory, deep=True, read=end).damage
    shutil.rmtree(mine.directory)
    shutil.copytree(other.directory, mine.directory)
    assert [each.text.partition(" ")[2] for each in inspect(mine.directory, deep=False, read=end).damage] == [
        "is of another log: of another deployment or endpoint"
    ]
    for use in (mine.check, mine.plan):
        with pytest.raises(Damaged, match=r"read: 0+1\.seg is of another log") as refused:
            use(end)
        assert "umbel check" in str(refused.value.hint)


def test_one_segment_of_another_log_is_found_and_refused(tmp_path: Path) -> None:
    mine, other = written(tmp_path / "one", 30), written(tmp_path / "two", 30, b"2")
    assert len(segments_in(mine.directory)) > 3
    _, end = mine.plan(mine.start(), rows=1)
    shutil.copyfile(Segment(other.directory, 3).path, Segment(mine.directory, 3).path)
    assert [each.text[:24] for each in inspect(mine.directory, deep=True).damage] == [f"{3:020d}.seg"]
    with pytest.raises(Damaged, match=r"is not the one that was read: 0+3\.seg"):
        mine.plan(end)
    assert mine.plan(end, rows=3)[1].row == 4


def test_segments_of_older_versions_are_read_and_later_ones_have_an_identity(tmp_path: Path) -> None:
    reader = written(tmp_path, 20)
    for segment in segments_in(reader.directory):
        data = segment.path.read_bytes()
        segment.path.write_bytes(preamble(segment.number, segment.preamble_row() or 0) + data[32:])
    rows, end = read(reader)
    assert (len(rows), end.log, "log" in end.to_json()) == (20, 0, False)
    written(tmp_path, 20)
    more, later = read(reader, end)
    assert (len(more), bool(later.log)) == (20, True)
    assert {each.log() for each in segments_in(reader.directory)} == {0, later.log}
    assert not inspect(reader.directory, deep=True, read=later).damage


def test_a_log_whose_identity_was_lost_goes_on(tmp_path: Path) -> None:
    reader = written(tmp_path, 3)
    _, end = read(reader)
    path = Segment(reader.directory, 1).path
    path.write_bytes(bytes(32) + path.read_bytes()[32:])
    (reader.directory / "lock").unlink()
    written(tmp_path, 20)
    rows, later = read(reader, end)
    assert (len(rows), later.log) == (20, end.log)
    assert {each.log() for each in segments_in(reader.directory)} == {ANY_LOG}
    assert not inspect(reader.directory, deep=True, read=later).damage


def test_a_log_that_was_lost_and_mended_goes_on(tmp_path: Path) -> None:
    reader = written(tmp_path, 30)
    _, end = read(reader)
    shutil.rmtree(reader.directory)
    written(tmp_path, 2)
    with pytest.raises(Damaged, match="ends before that"):
        reader.plan(end)
    mend(reader.directory, end)
    written(tmp_path, 2)
    assert len(segments_in(reader.directory)) == 2
    ranges, later = reader.plan(end)
    assert (ranges[-1].rows, later.log) == (2, end.log)


def test_rows_of_another_deployment_are_not_processed(tmp_path: Path) -> None:
    shops = [Shop(tmp_path / name) for name in ("one", "two")]
    for shop in shops:
        shop.sell()
        shop.deployed.log("sales", sales(100, 100))
        shop.deployed.close()
    log = Path("umbel/ingest/web/sales")
    shutil.rmtree(shops[0].folder / log)
    shutil.copytree(shops[1].folder / log, shops[0].folder / log)
    deployed = Deployed(shops[0].folder / "umbel")
    assert [each.subject for each in check(deployed.deployment) if "of another log" in each.text] == [
        "ingest/web/sales"
    ]
    with pytest.raises(Damaged, match="is not the one that was read"):
        drain(deployed.deployment)
    deployed.close()
