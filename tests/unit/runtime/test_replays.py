"""Dead letters that are processed again: each once, however often it is asked for."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import polars as pl
import pytest
from httpx import Client
from typer.testing import CliRunner

from tests.deployed import Deployed
from tests.unit.serving.asgi import serving_admin
from umbel.catalog.replays import TO_REPLAY, LetterFilter, Replays
from umbel.cli.main import app
from umbel.connectors import CSV, Files, Webhook, source
from umbel.datasets import dataset
from umbel.runtime import intake
from umbel.runtime.batch import MicroBatch, drain
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.recovery.rebuild import rebuild_all
from umbel.runtime.replays import ReplayReport, origin_of, replay_letters, replayable
from umbel.runtime.sources import open_sources
from umbel.state.port import Stamp

__owner__ = "tests@example.com"
AT = "2026-03-01T00:00:00Z"
SOON = (datetime.now(UTC) + timedelta(hours=30)).isoformat()


def events(folder: Path, kind: str = "web", *, wide: bool = False, pattern: str = "*.csv") -> Any:
    made = {
        "web": Webhook(name="web").endpoint("events"),
        "csv": Files(name="f", folder=str(folder)).path(pattern, CSV(headers=["user", "at"])),
        "header": Files(name="f", folder=str(folder)).path(pattern, CSV()),
    }[kind]

    @source(made, disorder="3650d", cdc="append")
    @dataset(version=2 if wide else 1)
    class Event:
        user: float if wide else int  # type: ignore[valid-type]
        at: datetime

    return Event


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Deployed]:
    found = Deployed(tmp_path / "umbel")
    yield found
    found.close()


def replay(made: Deployed, **chosen: Any) -> int:
    """Replay the dead letters of the dataset; return how many."""
    place = made.deployment
    letters, replays = LetterFilter(dataset="Event", **chosen), Replays(place.catalog)
    opened = list(open_sources(place.directory, place.graph(place.catalog.latest())))
    expected = replays.examine(letters, replayable(opened, "Event"))
    count = replays.request([(letters, replayable(opened, "Event"))])[1]
    assert count == expected[TO_REPLAY]
    return count


def outcomes(made: Deployed) -> dict[str, int]:
    """Return the dead letters of the dataset by what a replay does with them."""
    place = made.deployment
    opened = list(open_sources(place.directory, place.graph(place.catalog.latest())))
    return dict(Replays(place.catalog).examine(LetterFilter(dataset="Event"), replayable(opened, "Event")))


def users(made: Deployed) -> list[int]:
    return sorted(made.changes("Event")["user"].to_list())


@pytest.fixture
def ahead(made: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployed:
    """Return a deployment that has refused two rows that are ahead of its clock, and has a right one by now."""
    made.commit([events(tmp_path)])
    rows = [{"user": 1, "at": AT}, {"user": 2, "at": SOON}, {"user": "x", "at": SOON}, {"user": 3, "at": SOON}]
    made.log("events", rows)
    drain(made.deployment)
    assert users(made) == [1]
    assert len(made.deployment.catalog.dead_letters("Event")) == 3
    monkeypatch.setattr(intake, "EPOCH", intake.EPOCH + timedelta(days=2))  # the latest event time that is accepted
    return made


def test_records_are_processed_again_once(ahead: Deployed) -> None:
    assert replay(ahead, reason="is ahead of") == 2
    drain(ahead.deployment)
    assert users(ahead) == [1, 2, 3]
    assert replay(ahead, reason="is ahead of") == 0
    assert outcomes(ahead) == {"replayed before": 2, TO_REPLAY: 1}
    drain(ahead.deployment)
    assert users(ahead) == [1, 2, 3]
    assert ahead.deployment.catalog.counts()["Event", "replayed"] == 2


def test_a_record_that_is_rejected_again_is_a_new_dead_letter(ahead: Deployed) -> None:
    assert replay(ahead) == 3
    drain(ahead.deployment)
    assert users(ahead) == [1, 2, 3]
    newest, *others = ahead.deployment.catalog.dead_letters("Event")
    assert newest.position.startswith("replay 1: web/events: segment")
    assert len(others) == 3
    assert replay(ahead) == 1  # the new one
    drain(ahead.deployment)
    assert ahead.deployment.catalog.dead_letters("Event")[0].position.startswith("replay 2: replay 1: web/events")


def test_a_crash_in_the_batch_of_a_replay_doubles_nothing(ahead: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    replay(ahead)
    place = ahead.deployment

    def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for victim in ("run_here", "finish"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MicroBatch, victim, crash)
            with pytest.raises(KeyboardInterrupt):
                drain(place)
    number = place.plans().last()
    drain(place)
    assert users(ahead) == [1, 2, 3]
    batch = MicroBatch.begin(place, place.plans().read(number), Stamp(place.catalog.take_over(JOB), number - 1))
    batch.finish(batch.run_here())  # the same batch again
    assert users(ahead) == [1, 2, 3]


def test_a_filter_says_which(ahead: Deployed) -> None:
    now = datetime.now(UTC)
    for none in (
        {"reason": "100%"},
        {"source": 1},
        {"until": now - timedelta(hours=1)},
        {"since": now + timedelta(hours=1)},
    ):
        assert replay(ahead, **none) == 0
    assert (
        replay(ahead, reason="is ahead of", source=0, since=now - timedelta(hours=1), until=now + timedelta(hours=1))
        == 2
    )


def test_a_record_with_two_errors_is_one(made: Deployed, tmp_path: Path) -> None:
    made.commit([events(tmp_path)])
    made.log("events", [{"user": "x", "at": "never"}, {"user": 1, "at": AT}])
    drain(made.deployment)
    assert len(made.deployment.catalog.dead_letters("Event")) == 2
    assert replay(made) == 1
    place = made.deployment
    (opened,) = open_sources(place.directory, place.graph(place.catalog.latest()))
    assert len(Replays(place.catalog).ids(1, "Event", 0, origin_of(opened))) == 1


def test_a_changed_dataset_reads_its_sources_again_and_replays_nothing_twice(made: Deployed, tmp_path: Path) -> None:
    made.commit([events(tmp_path)])
    made.log("events", [{"user": 1.5, "at": AT}, {"user": "x", "at": AT}, {"user": 2, "at": AT}])
    drain(made.deployment)
    assert users(made) == [2]
    made.commit([events(tmp_path, wide=True)])
    drain(made.deployment)
    assert users(made) == [1.5, 2.0]
    assert replay(made) == 1  # the one that is still wrong
    drain(made.deployment)
    assert users(made) == [1.5, 2.0]


def test_a_commit_before_a_replay_is_processed_doubles_nothing(made: Deployed, tmp_path: Path) -> None:
    made.commit([events(tmp_path)])
    made.log("events", [{"user": 1.5, "at": AT}, {"user": "x", "at": AT}, {"user": 2, "at": AT}])
    drain(made.deployment)
    assert replay(made) == 2
    made.commit([events(tmp_path, wide=True)])
    drain(made.deployment)
    assert users(made) == [1.5, 2.0]
    assert replay(made) == 1  # the one that is still wrong
    drain(made.deployment)
    assert users(made) == [1.5, 2.0]


def test_requests_at_the_same_time_are_replays_of_their_own(made: Deployed, tmp_path: Path) -> None:
    """They had the same number, and letters of a number that was planned before were never processed."""
    made.commit([events(tmp_path)])
    made.log("events", [{"user": f"x{number}", "at": AT} for number in range(6)])
    drain(made.deployment)
    places = [Deployment.at(made.deployment.directory, shards=2) for _ in range(6)]
    barrier = Barrier(len(places))

    def request(number: int) -> ReplayReport:
        barrier.wait()
        return replay_letters(places[number], LetterFilter(dataset="Event", reason=f"'x{number}'"))

    with ThreadPoolExecutor(len(places)) as pool:
        found = [*pool.map(request, range(len(places)))]
    assert sorted((each.number, each.count) for each in found) == [(number, 1) for number in range(1, 7)]
    drain(made.deployment)
    assert made.deployment.catalog.counts()["Event", "replayed"] == 6
    for each in places:
        each.catalog.close()


def test_sources_that_are_all_read_again_count_replayed_records_once(ahead: Deployed) -> None:
    """Their events are not ahead of the clock any more, so that the sources have them, too."""
    assert replay(ahead, reason="is ahead of") == 2
    drain(ahead.deployment)
    folder = ahead.deployment.directory
    ahead.close()
    cleared = Deployed(folder)
    rebuild_all(cleared.deployment)
    cleared.close()
    again = Deployed(folder)
    drain(again.deployment)
    assert users(again) == [1, 2, 3]
    assert outcomes(again) == {"of an earlier definition, whose sources were read again since": 2, TO_REPLAY: 1}
    assert replay(again) == 1  # the one that is still wrong
    drain(again.deployment)
    assert users(again) == [1, 2, 3]
    again.close()


def test_records_of_csv_files_need_the_names_of_their_columns(made: Deployed, tmp_path: Path) -> None:
    made.commit([events(tmp_path, "csv")])
    (tmp_path / "a.csv").write_text(f'1,{AT}\n"1,5",{AT}\n')
    drain(made.deployment)
    assert users(made) == [1]
    assert replay(made) == 1
    drain(made.deployment)
    assert made.deployment.catalog.dead_letters("Event")[0].position.startswith("replay 1: a.csv: byte")


def test_records_that_cannot_be_read_again_are_counted(made: Deployed, tmp_path: Path) -> None:
    made.commit([events(tmp_path, "header")])
    (tmp_path / "a.csv").write_text(f"user,at\nx,{AT}\n")
    drain(made.deployment)
    assert replay(made) == 0
    assert outcomes(made) == {"of a source, a pipeline or a sink whose records cannot be replayed": 1}


def test_a_damaged_file_has_no_record_to_replay(made: Deployed, tmp_path: Path) -> None:
    """It was counted as replayed, and nothing of it was left to tell."""
    made.commit([events(tmp_path, "csv", pattern="*.csv.gz")])
    (tmp_path / "a.csv.gz").write_bytes(b"damaged")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(f"x,{AT}\n".encode()))
    drain(made.deployment)
    assert outcomes(made) == {"without a record, as a damaged file": 1, TO_REPLAY: 1}
    assert replay(made) == 1
    drain(made.deployment)
    assert outcomes(made) == {"without a record, as a damaged file": 1, TO_REPLAY: 1, "replayed before": 1}


def test_an_update_that_is_ahead_of_the_clock_is_refused_as_a_whole(
    made: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    @source(Webhook(name="web").endpoint("events"), disorder="3650d", cdc="debezium")
    @dataset
    class Event:
        user: int
        at: datetime

    made.commit([Event])
    created = {"op": "c", "before": None, "after": {"user": 1, "at": AT}, "ts_ms": 1772323200000}
    later = {"op": "u", "before": created["after"], "after": {"user": 2, "at": SOON}, "ts_ms": 1772323201000}
    made.log("events", [created, created, later])
    drain(made.deployment)
    assert made.changes("Event")["_weight"].sum() == 2  # not without the row before the update
    monkeypatch.setattr(intake, "EPOCH", intake.EPOCH + timedelta(days=2))
    assert replay(made) == 1
    drain(made.deployment)
    changes = made.changes("Event")
    assert changes.group_by("user").agg(pl.col("_weight").sum()).sort("user").rows() == [(1, 1), (2, 1)]


def test_the_route(ahead: Deployed) -> None:
    with serving_admin(ahead.deployment) as transport, Client(transport=transport, base_url="http://umbel") as http:
        path = "/api/v1/dataset/Event/dead_letters/replay"
        body = {"reason": "is ahead of", "since": "2020-01-01T00:00:00Z", "dry_run": False}
        expected = {"replay": None, "count": 2, "left_out": {}}
        assert http.post(path, json={**body, "dry_run": True}).json() == expected
        assert http.post(path, json=body).json() == {**expected, "replay": 1}
        assert http.post(path, json=body).json() == {**expected, "count": 0, "left_out": {"replayed before": 2}}
        assert http.post(path.replace("Event", "Evnt"), json=body).status_code == 404
        assert http.post(path, json={"since": "yesterday", "dry_run": True}).status_code == 400
    drain(ahead.deployment)
    assert users(ahead) == [1, 2, 3]


def test_the_command(ahead: Deployed) -> None:
    place = ["--dir", str(ahead.deployment.directory)]
    printed = [
        CliRunner().invoke(app, ["dead-letters", *words, *place]).output
        for words in (
            ["replay", "Event", "--reason", "is ahead of", "--dry-run"],
            ["replay", "Event", "--reason", "is ahead of"],
        )
    ]
    assert printed == ["2 would be processed again\n", "replay 1: 2 are processed with the next batches\n"]
    drain(ahead.deployment)
    assert users(ahead) == [1, 2, 3]
    listed = CliRunner().invoke(app, ["dead-letters", "Event", *place]).output
    assert "3 in all" in listed
    assert "2 were replayed so far" in listed
    unknown = CliRunner().invoke(app, ["dead-letters", "replay", "Evnt", *place])
    assert "did you mean 'Event'" in str(unknown.exception)
