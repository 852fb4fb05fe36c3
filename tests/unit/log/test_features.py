"""The feature log on disk: what was appended is read, whole and between instants, whatever happened meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import rmtree

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from umbel.log import features
from umbel.log.features import DamagedLine, FeatureLog, spelled
from umbel.state import disk

NOON = datetime(2024, 2, 28, 12, tzinfo=UTC)


def line(at: datetime, number: int) -> bytes:
    return orjson.dumps({"timestamp": spelled(at), "n": number}, option=orjson.OPT_APPEND_NEWLINE)


def put(log: FeatureLog, at: datetime, number: int, workflow: str = "w", branch: str = "main") -> None:
    log.append(branch, workflow, spelled(at)[:10], [line(at, number)])


def numbers(log: FeatureLog, *args: object, branch: str = "main") -> list[int]:
    blocks = b"".join(log.read(branch, *args))  # type: ignore[arg-type]
    return [orjson.loads(each)["n"] for each in blocks.splitlines()]


@given(st.data())
def test_reading_between_instants(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    log = FeatureLog(tmp_path_factory.mktemp("log"))
    instants = st.datetimes(datetime(2024, 2, 27), datetime(2024, 3, 2), timezones=st.just(UTC))
    ats = data.draw(st.lists(instants, max_size=8))
    for number, at in enumerate(ats):
        put(log, at, number)
    since, until = data.draw(st.none() | instants), data.draw(st.none() | instants)
    expected = [
        number for number, at in enumerate(ats) if (since is None or at >= since) and (until is None or at < until)
    ]
    assert sorted(numbers(log, "w", since, until)) == expected


def test_workflows_and_branches_are_apart(tmp_path: Path) -> None:
    log = FeatureLog(tmp_path)
    names = ["default", "a/b", "..", ".", "ä b", "%2E"]
    for number, name in enumerate(names):
        put(log, NOON, number, workflow=name)
        put(log, NOON, 100 + number, branch=f"branch {name}")
    assert [numbers(log, name) for name in names] == [[each] for each in range(len(names))]
    assert [numbers(log, branch=f"branch {name}") for name in names] == [[100 + each] for each in range(len(names))]
    assert sorted(numbers(log)) == list(range(len(names)))
    assert numbers(log, "none") == []
    assert len(list(tmp_path.rglob("*.ndjson"))) == 2 * len(names)


def test_a_line_cut_short_is_not_read_nor_continued(tmp_path: Path) -> None:
    log = FeatureLog(tmp_path)
    put(log, NOON, 1)
    (file,) = tmp_path.rglob("*.ndjson")
    with file.open("ab") as torn:
        torn.write(line(NOON, 2)[:-5])
    assert numbers(log) == [1]
    again = FeatureLog(tmp_path)
    put(again, NOON, 3)
    assert numbers(again) == [1, 3]


def test_nothing_follows_lines_that_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FeatureLog(tmp_path)
    put(log, NOON, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync", full)
        patch.setattr(features.os, "truncate", full)
        with pytest.raises(OSError, match="No space"):
            put(log, NOON, 2)
    put(log, NOON, 3)
    assert len(list(tmp_path.rglob("*.ndjson"))) == 2
    assert numbers(log) == [1, 2, 3]  # what could not be undone stays


def test_a_full_disk_does_not_fill_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FeatureLog(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync", full)
        for number in range(20):
            with pytest.raises(OSError, match="No space"):
                put(log, NOON, number)
    assert list(tmp_path.rglob("*.ndjson")) == []
    put(log, NOON, 20)
    assert numbers(log) == [20]


def test_names_of_any_length(tmp_path: Path) -> None:
    log = FeatureLog(tmp_path)
    names = ["/" * 128, "/" * 127 + ".", "\U0001f600" * 128, "a" * 255, "a" * 256, "=" * 85, "=" * 86]
    for number, name in enumerate(names):
        put(log, NOON, number, workflow=name, branch=name)
    assert [numbers(log, name, branch=name) for name in names] == [[each] for each in range(len(names))]
    assert (tmp_path / ("a" * 255) / ("a" * 255)).is_dir()


def test_days_may_be_deleted_while_they_are_read(tmp_path: Path) -> None:
    log = FeatureLog(tmp_path)
    put(log, NOON, 1)
    put(FeatureLog(tmp_path), NOON, 2)
    blocks = log.read("main", "w")
    read = [next(blocks)]
    (day,) = (tmp_path / "main" / "w").iterdir()
    rmtree(day)
    assert [orjson.loads(each)["n"] for each in [*read, *blocks]] == [1]
    put(log, NOON, 3)
    assert numbers(log) == [3]


def test_what_others_put_beside_the_days_is_left_alone(tmp_path: Path) -> None:
    log = FeatureLog(tmp_path)
    put(log, NOON, 1)
    for name in (".snapshot", "lost+found", "2024-13-45", "20240101", "2024-01-01"):
        (tmp_path / "main" / "w" / name).mkdir()
    (tmp_path / "main" / "w" / "2024-01-02").touch()
    assert numbers(log) == [1]
    assert log.expire(NOON) == ["2024-01-01"]
    assert numbers(log) == [1]


def test_links_do_not_keep_days_from_being_deleted(tmp_path: Path) -> None:
    """Of a day that was moved elsewhere the link goes, and the day stays."""
    log, folder = FeatureLog(tmp_path / "log"), tmp_path / "log" / "main" / "w"
    for number in range(3):
        put(log, NOON + timedelta(days=number), number)
    (folder / "2024-02-28").rename(tmp_path / "moved")
    (folder / "2024-02-28").symlink_to(tmp_path / "moved")
    (folder / "2024-02-29" / "gone.ndjson").symlink_to(tmp_path / "nowhere")
    assert numbers(log) == [0, 1, 2]
    assert log.expire(NOON + timedelta(days=2)) == ["2024-02-28", "2024-02-29"]
    assert numbers(log) == [2]
    assert len(list((tmp_path / "moved").iterdir())) == 1


def test_segments_are_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "SEGMENT_BYTES", 100)
    monkeypatch.setattr(features, "BLOCK", 7)
    log = FeatureLog(tmp_path)
    for number in range(20):
        put(log, NOON + timedelta(seconds=number), number)
    assert len(list(tmp_path.rglob("*.ndjson"))) > 5
    assert numbers(log) == list(range(20))


@pytest.mark.parametrize("year", [1, 999, 1970, 9999])
def test_any_year(tmp_path: Path, year: int) -> None:
    log, at = FeatureLog(tmp_path), datetime(year, 12, 31, 23, 59, tzinfo=UTC)
    put(log, at, 7)
    assert numbers(log, "w", at) == [7]
    assert numbers(log, "w", None, at) == []


@given(st.integers(0, 10_000), st.integers(1, 255))
@examples(60)
def test_a_changed_byte_loses_one_line_at_most(
    tmp_path_factory: pytest.TempPathFactory, place: int, change: int
) -> None:
    log = FeatureLog(tmp_path_factory.mktemp("log"))
    log.append("main", "w", spelled(NOON)[:10], [line(NOON, number) for number in range(6)])
    (path,) = log._folder.rglob("*.ndjson")
    data = bytearray(path.read_bytes())
    place %= len(data)
    hit = data[:place].count(b"\n")
    data[place] ^= change
    path.write_bytes(data)
    damage = list[DamagedLine]()
    found = [orjson.loads(each)["n"] for each in b"".join(log.read("main", damaged=damage.append)).splitlines()]
    assert found == [number for number in range(6) if number != hit]
    assert [each.path for each in damage] in ([path], [path] * 2)
    assert damage[0].offset <= place


def test_damage_is_reported_by_its_bytes(tmp_path: Path) -> None:
    log = FeatureLog(tmp_path)
    for number in range(3):
        put(log, NOON, number)
    (path,) = tmp_path.rglob("*.ndjson")
    whole = path.read_bytes()
    size = len(whole) // 3

    def read_back(content: bytes) -> tuple[list[tuple[int, int]], list[int]]:
        path.write_bytes(content)
        damage = list[tuple[int, int]]()
        lines = b"".join(log.read("main", damaged=lambda each: damage.append((each.offset, each.size)))).splitlines()
        return damage, [orjson.loads(each)["n"] for each in lines]

    assert read_back(whole) == ([], [0, 1, 2])
    assert read_back(whole[:size].replace(b"0", b"1") + whole[size:]) == ([(0, size)], [1, 2])
    assert read_back(whole[:-1] + b"\x0e") == ([(2 * size, size)], [0, 1])
    assert read_back(whole[:-1]) == ([], [0, 1])  # as a crash leaves it
    # Of the second line the break is lost: it is read to its end with the third one behind it.
    assert read_back(whole[: 2 * size - 1] + b" " + whole[2 * size :]) == ([(size, size)], [0, 2])


def test_lines_of_the_first_version_are_read(tmp_path: Path) -> None:
    log = FeatureLog(tmp_path)
    put(log, NOON, 1)
    (path,) = tmp_path.rglob("*.ndjson")
    path.with_name("0001-old-00000.ndjson").write_bytes(line(NOON, 0))
    assert numbers(log) == [0, 1]
