"""A source that does not answer: it is asked again after a while, and the others go on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from umbel.connectors import Files, Webhook, source
from umbel.connectors.file_source import FileSource
from umbel.connectors.files import Folder
from umbel.connectors.splits import SplitSource
from umbel.datasets import dataset
from umbel.errors import Transient
from umbel.formats.stored import Stamp
from umbel.runtime import sources
from umbel.runtime.plans import Plans
from umbel.runtime.sources import OpenedSource

__owner__ = "tests@example.com"


class Unsteady(SplitSource):
    """A source that answers when it likes."""

    is_down, calls = False, 0

    def plan(self, position: Any, budget: int) -> tuple[Any, Any]:
        self.calls += 1
        if self.is_down:
            raise Transient("the cluster does not answer")
        return [({"number": self.calls}, 1)], self.calls


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(sources.time, "monotonic", lambda: now[0])
    return now


def opened(reading: SplitSource, key: str) -> OpenedSource:
    @source(Webhook(name="web").endpoint("e"), disorder="1d", cdc="append")
    @dataset
    class D:
        x: int
        at: __import__("datetime").datetime

    from umbel.api.dataset import record_of

    return OpenedSource("D", 0, reading, record_of(D).sources[0], key)


def test_a_source_that_does_not_answer_is_polled_ever_more_rarely(clock: list[float]) -> None:
    reading = Unsteady()
    one = opened(reading, "k")
    assert one.plan(None, 10)[1] == 1
    reading.is_down = True
    for _ in range(10_000):
        assert one.plan(1, 10) == ((), 1)
        clock[0] += 0.1
    assert 1000 / sources.LONGEST_WAIT <= reading.calls - 1 <= 1000 / sources.LONGEST_WAIT + 10
    assert "does not answer" in one.trouble
    reading.is_down = False
    clock[0] += sources.LONGEST_WAIT
    assert one.plan(1, 10)[0]
    assert one.trouble == ""


def test_others_go_on_and_trouble_is_reported_once(tmp_path: Path, clock: list[float]) -> None:
    down, fine, reports = Unsteady(), Unsteady(), list[tuple[str, str]]()
    both = [opened(down, "down"), opened(fine, "fine")]
    down.is_down = True
    plans = Plans(
        tmp_path, lambda: (1, both), lambda: 100, lambda: False, on_trouble=lambda *report: reports.append(report)
    )
    for number in range(5):
        assert plans.next(number) == number + 1
        assert [split.split["number"] for split in plans.read(number + 1).splits] == [number + 1]
        clock[0] += 20
    down.is_down = False
    plans.next(5)
    assert len(plans.read(6).splits) == 2
    assert [(key, reason[:27]) for key, reason in reports] == [
        ("down", "the cluster does not answer"),
        ("down", "it answers again"),
    ]


@dataclass(frozen=True, slots=True)
class Pages(Folder):
    """A folder that is listed two names at a time, as a bucket is listed many at a time."""

    is_costly = True
    failure_domain = None

    def listed(self, start: str) -> tuple[dict[str, Stamp], str]:
        names, _ = Folder.listed(self, start)
        found = dict(list(names.items())[:2])
        return found, max(found) if len(names) > 2 else ""


def in_pages(folder: Path) -> OpenedSource:
    one = opened(FileSource(Pages(str(folder), "*.json"), "json"), "k")
    connector = Files(name="f", folder=str(folder)).path("*.json")
    return replace(one, definition=replace(one.definition, connector=connector, every=3_600_000_000))


def test_a_listing_of_several_pages_is_read_to_its_end_at_once(tmp_path: Path) -> None:
    """Not one page in each `every`: after a restart the first ones have nothing new."""
    for name in "abcde":
        (tmp_path / f"{name}.json").write_text("{}\n")
    one, position = in_pages(tmp_path), None
    for _ in range(3):
        _, position = one.plan(position, 1000)
    (tmp_path / "f.json").write_text("{}\n")
    again = in_pages(tmp_path)
    found = list[list[str]]()
    for _ in range(6):
        splits, position = again.plan(position, 1000)
        found.append([split["file"] for split, _ in splits])
    assert found == [[], [], ["f.json"], [], [], []]
    (tmp_path / "g.json").write_text("{}\n")
    (tmp_path / "0.json").write_text("{}\n")
    assert not again.plan(position, 1000)[0], "it is polled once per `every`"


def test_rows_of_all_pages_are_those_that_exist_already(tmp_path: Path) -> None:
    for name in "abcdef":
        (tmp_path / f"{name}.json").write_text("{}\n")
    one = in_pages(tmp_path)
    plans = Plans(tmp_path / "plans", lambda: (1, [one]), lambda: 1000, lambda: False)
    assert [plans.next(number) for number in range(6)] == [1, 2, 3, 4, 5, 5]
    found = [(len(plan.splits), bool(plan.loading)) for plan in map(plans.read, range(1, 6))]
    assert found == [(2, True), (2, True), (2, True), (0, True), (0, False)]
