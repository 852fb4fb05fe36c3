"""Plans on disk: one that is damaged or missing is refused by name, and so is one that has read what is gone."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.unit.serving.conftest import DEPARTURES
from tests.unit.serving.flights import DATASETS
from umbel.api.commit import check_commit
from umbel.errors import Damaged
from umbel.log.ingest import IngestLog
from umbel.log.segments import Segment, directory_of
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.runtime.plans import BatchPlan, Plans


class Numbers:
    """A source that has something new each time."""

    dataset, source, key, trouble = "D", 0, "k", ""
    is_bounded = has_ended = is_loading = loads_unordered = False

    def read_ahead(self) -> None:
        pass

    def plan(self, position: int | None, budget: int) -> tuple[Sequence[tuple[Mapping[str, Any], int]], int]:
        at = (position or 0) + 1
        return [({"begin": at * 1000}, 10)], at

    def unread_partitions(self, position: int | None) -> Sequence[str]:
        return ()

    def check(self, position: int | None) -> None:
        pass


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    plans = Plans(tmp_path / "plans", lambda: (1, [Numbers()]), lambda: 100, lambda: False)
    assert [plans.next(number) for number in range(3)] == [1, 2, 3]
    return plans


def test_a_changed_byte_is_noticed_wherever_it_is(plans: Plans, tmp_path: Path) -> None:
    path = tmp_path / "plans" / "000000000003.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        for change in (1, 4, 128):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :])
            with pytest.raises(Damaged, match=r"plan 3 is damaged: plans/000000000003.json"):
                plans.read(3)
    path.write_bytes(whole)
    assert plans.read(3).positions == {"k": 3}


def test_all_sources_are_read_ahead_before_the_first_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[str]()
    monkeypatch.setattr(Numbers, "read_ahead", lambda _: calls.append("read ahead"))
    monkeypatch.setattr(Numbers, "plan", lambda *_: calls.append("plan") or ([], 0))
    Plans(tmp_path / "plans", lambda: (1, [Numbers(), Other()]), lambda: 100, lambda: False).next(0)
    assert calls == ["read ahead", "read ahead", "plan", "plan"]


class Unordered(Numbers):
    """A source whose first rows come in no order: three parts that existed already, then one that is new."""

    loads_unordered, is_loading, parts = True, True, 0

    def plan(self, position: int | None, budget: int) -> tuple[Sequence[tuple[Mapping[str, Any], int]], int]:
        read = position or 0
        return [({"part": read + 1}, 10)] if read < self.parts else [], min(read + 1, self.parts)


def test_first_rows_in_no_order_are_loading_until_the_last_one_is_planned(tmp_path: Path) -> None:
    """Also where reading ends before planning does; a plan without rows says that they are all there."""
    source = Unordered()
    plans = Plans(tmp_path / "plans", lambda: (1, [source]), lambda: 5, lambda: False)
    is_loading = []
    for number, parts in enumerate([0, 1, 3, 3, 3]):
        source.parts, source.is_loading = parts, number < 2
        assert plans.next(number) == number + 1
        is_loading.append(
            Plans(tmp_path / "plans", lambda: (1, [source]), lambda: 5, lambda: False).read(number + 1).loading
        )
    assert is_loading == [("k",)] * 5
    assert plans.next(5) == 6
    assert (plans.read(6).loading, plans.read(6).splits) == ((), ())
    assert plans.next(6) == 6
    source.parts = 4
    assert plans.next(6) == 7
    assert plans.read(7).loading == ()


def test_first_rows_are_loading_while_their_source_does_not_answer(tmp_path: Path) -> None:
    """Such as a bucket that is away for a while: the rows that it has still would be late."""
    source = Unordered()
    source.is_loading, source.parts = False, 1
    plans = Plans(tmp_path / "plans", lambda: (1, [source]), lambda: 5, lambda: False)
    assert plans.next(0) == 1
    source.trouble = "it does not answer"
    assert [plans.next(1), plans.next(1)] == [1, 1]
    source.trouble, source.parts = "", 2
    assert plans.next(1) == 2
    assert [plans.read(number).loading for number in (1, 2)] == [("k",)] * 2


def test_a_missing_plan_is_reported_with_the_last_there_is(plans: Plans) -> None:
    for number in (4, 57):
        with pytest.raises(Damaged, match=rf"plan {number} is missing: plans/0+{number}.json; the last one there is 3"):
            plans.next(number)


def test_plans_of_the_first_version_are_read(plans: Plans, tmp_path: Path) -> None:
    plan = plans.read(3)
    (tmp_path / "plans" / "000000000003.json").write_text(json.dumps(asdict(plan), separators=(",", ":")))
    assert plans.read(3) == plan


@pytest.fixture
def place(tmp_path: Path) -> Deployment:
    deployment = Deployment.at(tmp_path, shards=2)
    commit(deployment, check_commit(DATASETS, []))
    return deployment


def send(place: Deployment, rows: list[dict[str, object]]) -> None:
    log = IngestLog(place.directory, "events", "departures")
    log.append_blocking(orjson.dumps(rows), len(rows))
    log.close()


def test_a_damaged_record_is_a_dead_letter_and_the_rest_is_processed(place: Deployment) -> None:
    for row in DEPARTURES:
        send(place, [row])
    path = Segment(directory_of(place.directory, "events", "departures"), 1).path
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    drain(place)
    assert place.catalog.counts() == {
        ("Departure", "rows"): len(DEPARTURES) - 1,
        ("Departure", "dead"): 1,
        ("Departure", "dead_reason:broken record"): 1,
        ("Departure", "damaged"): 1,
    }
    (letter,) = place.catalog.dead_letters("Departure")
    assert letter.reason.startswith("the ingest log is damaged: ingest/events/departures/00000000000000000001.seg, ")
    assert "up to 1 rows are lost, from row 0 on" in letter.reason
    assert letter.position.startswith("events/departures: segment 1, byte 32, ")
    assert letter.raw == bytes(data)[32 : 32 + letter.size]
    assert drain(place) == 0


def test_what_was_read_and_is_gone_stops_the_job_with_a_remedy(place: Deployment) -> None:
    send(place, DEPARTURES)
    drain(place)
    plans = place.plans()
    plans.check(plans.last())
    shutil.rmtree(directory_of(place.directory, "events", "departures"))
    send(place, DEPARTURES[:1])
    for attempt in (lambda: drain(place), lambda: place.plans().check(plans.last())):
        with pytest.raises(Damaged, match=r"ingest log ingest/events/departures was read up to segment 1") as refused:
            attempt()
        assert str(refused.value.hint).startswith("restore umbel's folder as a whole from one backup")


class Partitioned(Numbers):
    """A source with one split for each of two partitions, of which one has more."""

    key = "p"

    def plan(self, position: int | None, budget: int) -> tuple[Sequence[tuple[Mapping[str, Any], int]], int]:
        at = (position or 0) + 1
        return [({"partition": name, "begin": at}, 10) for name in ("a", "b")], at

    def unread_partitions(self, position: int | None) -> Sequence[str]:
        return ["a"]


class Other(Numbers):
    source = 1


@pytest.fixture
def both(tmp_path: Path) -> Plans:
    return Plans(tmp_path / "both", lambda: (1, [Partitioned(), Other()]), lambda: 100, lambda: False)


def postponed(plans: Plans, number: int) -> BatchPlan:
    plan = plans.read(number)
    partitions = [each.split["partition"] for each in plan.splits if each.source == 0]
    return plans.postpone(plan, {("D", 0)}, {"p": partitions})


def test_a_source_that_does_not_answer_is_planned_again(both: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [both.next(0), both.next(1)] == [1, 2]
    changed, begun = postponed(both, 2), time.time()
    assert changed == both.read(2)
    assert [each.split for each in changed.splits] == [{"begin": 2000}]
    assert changed.positions == {"p": 1, "k": 2}
    assert changed.behind == ("p",)
    assert changed.unread == {"p": ["a", "b"]}  # what is left out is unread as well
    assert both.next(2) == 3
    resting = both.read(3)
    assert [each.split for each in resting.splits] == [{"begin": 3000}]
    assert resting.positions == {"p": 1, "k": 3}
    monkeypatch.setattr("umbel.runtime.plans.time.time", lambda: begun + 5)
    assert both.next(3) == 4
    assert [each.split.get("partition") for each in both.read(4).splits] == [None, "a", "b"]
    assert both.read(4).positions == {"p": 2, "k": 4}


def test_it_rests_for_longer_each_time_until_it_is_read(both: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr("umbel.runtime.plans.time.time", lambda: now)
    assert both.next(0) == 1
    for number in range(1, 9):
        times, until = postponed(both, number).away["p"]
        assert times == number
        assert until - now == pytest.approx(min(60, 2**number))
        now = until
        assert both.next(number) == number + 1
    assert both.next(9) == 10  # that was read
    assert both.read(10).away == {}
    assert postponed(both, 10).away["p"][0] == 1


def test_it_does_not_rest_until_a_clock_that_was_set_back_is_there_again(
    both: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert both.next(0) == 1
    postponed(both, 1)
    now = time.time() - 3600
    monkeypatch.setattr("umbel.runtime.plans.time.time", lambda: now)
    assert both.next(1) == 2
    assert [each.split.get("partition") for each in both.read(2).splits] == [None, "a", "b"]


def test_a_source_that_never_answered_is_planned_from_its_beginning(both: Plans) -> None:
    assert both.next(0) == 1
    assert postponed(both, 1).positions == {"k": 1}
