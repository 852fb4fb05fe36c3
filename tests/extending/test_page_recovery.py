"""Pages of a source of another package after damage, restarts, and failures of partitions."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest

from tests.connectors.shop_datasets import until
from tests.deployed import Deployed, wait_until
from tests.extending.pages import Read, put, raising, seen
from tests.extending.shelves import PAGE, Shelves
from tests.extending.test_connector_contract import Poller
from umbel.connectors import custom, polling, staging
from umbel.connectors.custom import Page
from umbel.connectors.polling import stop_polling
from umbel.connectors.staged_source import StagedSource
from umbel.errors import Damaged, InvalidType, Transient
from umbel.runtime.batch import drain
from umbel.runtime.recovery.check import check
from umbel.runtime.recovery.finding import CheckFinding
from umbel.runtime.source_lags import source_lags
from umbel.runtime.sources import open_sources
from umbel.runtime.switching import branch_status
from umbel.testing.connectors import read_options

__owner__ = "shop@example.com"


@pytest.mark.parametrize("name", ["state.json", "000000000002.rows"])
def test_damage_of_the_staged_rows_is_reported(
    server: Shelves, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """An empty last part ended the thread, which was started anew and ended several times a second, with a traceback each."""
    put(server, "a", range(2 * PAGE))
    place = Deployed(tmp_path / "umbel")
    try:
        place.commit([seen(server, "a")])
        until(place, lambda: place.taken().get("Seen", 0) == 2 * PAGE)
        stop_polling(tmp_path)
        (harmed,) = (tmp_path / "umbel" / "staged").glob(f"*/{name}")
        harmed.write_bytes(b"")
        assert [each for each in check(place.deployment) if each.subject.startswith("staged rows of") and each.lost]
        if name == "state.json":
            with pytest.raises(Damaged, match=r"state.json of Seen.* is damaged"):
                drain(place.deployment)
            return

        def troubles() -> list[str]:
            drain(place.deployment)
            return [each.trouble for each in source_lags(place.deployment.directory)]

        wait_until(lambda: any("part 2 of Seen" in each for each in troubles()), troubles)
        thread = [each for each in threading.enumerate() if each.name.startswith("poll Shelf")]
        troubles()
        assert [each for each in threading.enumerate() if each.name.startswith("poll Shelf")] == thread
        assert "the error cannot be reported" in caplog.text
    finally:
        stop_polling(tmp_path)
        place.close()


@pytest.mark.parametrize("gone", [[2], [3], [2, 3]], ids=str)
def test_a_missing_page_that_no_batch_has_read_is_reported(server: Shelves, tmp_path: Path, gone: list[int]) -> None:
    """Nobody compared what the state says with the files: the rows were lost, and `umbel check` said that all was there."""
    put(server, "a", range(3 * PAGE))
    place = Deployed(tmp_path / "umbel")
    try:
        place.commit([seen(server, "a")])
        until(place, lambda: place.taken().get("Seen", 0) == 3 * PAGE)
        stop_polling(tmp_path)
        (opened,) = open_sources(place.deployment.directory, place.deployment.graph(1))
        reading = cast("Any", opened.reading)
        _, position = reading.plan(None, 1)
        assert list(found(place)) == []
        for number in gone:
            (reading.folder / f"{number:012d}.rows").unlink()
        assert {each.subject for each in found(place)} == {f"staged rows of {reading.folder.name}"}
        assert all(f"part {gone[-1]} " in each.text and each.lost and each.remedy for each in found(place))
        if 2 in gone and 3 not in gone:
            with pytest.raises(Damaged, match="staged rows after part 1 are missing"):
                reading.plan(position, 1)
            return
        with pytest.raises(Damaged, match=r"part 3 of .* is missing"):
            reading.read_on(Poller())
        with pytest.raises(Damaged):  # it would be a part of the missing number
            reading.report(InvalidType("no page"))
    finally:
        stop_polling(tmp_path)
        place.close()


def found(place: Deployed) -> Iterator[CheckFinding]:
    return (each for each in check(place.deployment) if each.subject.startswith("staged rows"))


def test_a_reader_may_advance_its_offset_in_place(
    server: Shelves, read: Callable[[Read], Read], tmp_path: Path
) -> None:
    """The offset behind the last page was advanced with it by the read that found nothing: the next page was skipped."""
    pages = list[int]()

    def in_place(_: Any, __: str, offset: Any) -> Iterator[Page]:
        offset = offset or {"page": 0}
        while True:
            offset["page"] += 1
            if offset["page"] > len(pages):
                return
            yield Page([{"n": pages[offset["page"] - 1]}], offset)

    read(in_place)
    from umbel_extras.shelf import Shelf

    reading = Shelf(name="shelf", url=server.url).items("a").reader_of(read_options(tmp_path))
    for n in range(5):
        pages.append(n)
        for _ in range(2):
            reading.stage.save({**reading.stage.state(), "polled_at": 0.0})
            reading.read_on(Poller())
    staged = pl.concat([reading.stage.read(number) for number in reading.stage.numbers()])
    assert [json.loads(each)["n"] for each in staged.to_series()] == pages


def test_the_offset_behind_rows_is_not_none(server: Shelves, read: Callable[[Read], Read], tmp_path: Path) -> None:
    """A last page with the `null` that its API gives for "no more" made all rows come again with each read, without a word."""
    pages: list[list[Any]] = [[], [7], []]

    def to_null(_: Any, __: str, offset: Any) -> Iterator[Page]:
        number = offset or 0
        yield Page([{"n": each} for each in pages[number]], number + 1 if number == 1 else None)

    read(to_null)
    from umbel_extras.shelf import Shelf

    reading = Shelf(name="shelf", url=server.url).items("a").reader_of(read_options(tmp_path))
    for offset in (None, 1, 2):
        offsets = {**reading.stage.state(), "polled_at": 0.0, "offsets": {"a": offset}}
        reading.stage.save(offsets)
        if offset == 2:
            with pytest.raises(InvalidType, match=r"partition 'a': the offset behind a page is None.*come again"):
                reading.read_on(Poller())
        else:
            reading.read_on(Poller())  # nothing at the begin, or an offset
    pages[0] = [8]
    reading.stage.save({**reading.stage.state(), "polled_at": 0.0, "offsets": {}})
    with pytest.raises(InvalidType, match=r"partition 'a': the offset behind a page is None"):
        reading.read_on(Poller())
    assert [reading.stage.read(number).height for number in reading.stage.numbers()] == [1]


def test_a_commit_that_waits_names_the_partition_that_fails(
    server: Shelves, failing: tuple[set[str], list[str]], tmp_path: Path
) -> None:
    """It was "backfilled: 100 %; nothing serves yet", and nothing said why."""
    place = Deployed(tmp_path / "umbel")
    try:
        place.commit([seen(server, "a", "b")])

        def message() -> str:
            drain(place.deployment)
            return str(branch_status(place.deployment, "main")["message"])

        wait_until(lambda: "; it waits for a source of Seen: Shelf 'shelf': cannot be read: " in message(), message)
        assert "partition 'a': OSError: gone" in message()
        failing[0].clear()
        wait_until(lambda: "serves" in message() and "waits" not in message(), message)
    finally:
        stop_polling(tmp_path)
        place.close()


def test_a_new_partition_that_is_half_read_holds_the_watermark_after_a_restart(
    server: Shelves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only those that had been read to their end were known before the server named all again: rows of the others were late."""
    from umbel_extras.shelf import Shelf, ShelfReader

    def opened() -> Any:
        return Shelf(name="shelf", url=server.url).items("a").reader_of(read_options(tmp_path))

    names = ["a"]
    monkeypatch.setattr(ShelfReader, "partitions", lambda _: names)
    put(server, "a", range(1))
    put(server, "b", range(3 * PAGE))
    reading = opened()
    reading.read_on(Poller())
    assert set(opened().unread_partitions({"part": 1})) == {"a"}
    names += ["b", "c"]
    reading.stage.save({**reading.stage.state(), "polled_at": 0.0})
    monkeypatch.setattr(StagedSource, "has_room", raising(Transient("killed")))
    with pytest.raises(Transient, match="killed"):
        reading.read_on(Poller())
    assert reading.stage.numbers() == [1, 2]  # a page of b, and none of c
    for part in (1, 2):
        assert set(opened().unread_partitions({"part": part})) == {"a", "b", "c"}


@pytest.fixture
def failing(server: Shelves, read: Callable[[Read], Read]) -> tuple[set[str], list[str]]:
    """Return the partitions that fail, and those that were read, each time."""
    names, requested = {"a"}, list[str]()

    def of(reader: Any, partition: str, offset: Any) -> Iterator[Page]:
        requested.append(partition)
        if partition in names:
            raise OSError("gone")
        yield from original(reader, partition, offset)

    original = read(of)
    for shelf in "ab":
        put(server, shelf, range(1))
    return names, requested


def test_a_partition_that_fails_is_read_again_without_the_others(
    server: Shelves, failing: tuple[set[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These were read at its pace, and neither were their offsets saved nor did their pages expire."""
    from umbel_extras.shelf import Shelf

    monkeypatch.setattr(staging, "RETAINED_FOR", -1.0)
    (names, requested), poller, hour = failing, cast("Any", Poller()), 3_600_000_000
    reading = Shelf(name="shelf", url=server.url).items("a", "b").reader_of(read_options(tmp_path, every=hour))
    for expected in (["a", "b"], ["a"]):
        requested.clear()
        with pytest.raises(Transient, match="partition 'a': OSError: gone"):
            reading.read_on(poller)
        assert requested == expected
        assert 3000 < poller.due <= 3600
        assert (reading.stage.state()["offsets"], reading.is_loading) == ({"a": None, "b": 1}, True)
    put(server, "b", range(1, 3))
    poller.consumed, poller.may_retry = 1, False
    reading.stage.save({**reading.stage.state(), "polled_at": 0.0})
    requested.clear()
    reading.read_on(poller)
    assert (requested, reading.stage.numbers(), poller.unread) == (["b"], [2], {"a"})
    assert reading.stage.state()["offsets"] == {"a": None, "b": 3}
    names.clear()
    requested.clear()
    assert 3000 < reading.read_on(poller) <= 3600
    assert (requested, reading.is_loading, poller.unread) == (["a"], False, frozenset())
    assert 3000 < reading.read_on(poller) <= 3600
    assert requested == ["a"]


def test_the_others_are_read_in_time_while_a_partition_fails(
    server: Shelves, failing: tuple[set[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failing one is waited for a minute; its trouble is told all that time, and not when it is over."""
    from umbel_extras.shelf import Shelf

    monkeypatch.setattr(polling, "FIRST_WAIT", 60.0)
    monkeypatch.setattr(polling, "LONGEST_WAIT", 60.0)
    names, requested = failing
    reading = Shelf(name="shelf", url=server.url).items("a", "b").reader_of(read_options(tmp_path))
    reading.tend()
    try:
        wait_until(lambda: requested.count("b") > 5, lambda: requested)
        assert requested.count("a") == 1
        assert "partition 'a': OSError: gone" in reading.trouble
        stop_polling(tmp_path)
        names.clear()
        reading.tend()
        wait_until(lambda: requested.count("a") > 2, lambda: requested)
        assert reading.trouble == ""
    finally:
        stop_polling(tmp_path)


def test_the_offsets_are_saved_within_a_long_read(
    server: Shelves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that batches had read did not expire before its end."""
    from umbel_extras.shelf import Shelf

    monkeypatch.setattr(staging, "RETAINED_FOR", -1.0)
    monkeypatch.setattr(custom, "SAVED_FOR", -1.0)
    put(server, "a", range(3 * PAGE))
    poller, saved = cast("Any", Poller()), list[Any]()
    reading = Shelf(name="shelf", url=server.url).items("a").reader_of(read_options(tmp_path))

    def consume(*_: Any) -> bool:
        saved.append((reading.stage.state()["offsets"]["a"], reading.stage.numbers()))
        poller.consumed = reading.stage.numbers()[-1]
        return True

    monkeypatch.setattr(StagedSource, "has_room", consume)
    reading.read_on(poller)
    assert saved == [(None, [1]), (PAGE, [1, 2]), (2 * PAGE, [2, 3])]
