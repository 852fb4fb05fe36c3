"""Bounds of event time: rows of a far future move nothing, rows that come too late can be looked at."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.deployed import Deployed
from umbel.catalog.catalog import DeadLetter
from umbel.cli.checks import SettingCheck, deployed
from umbel.cli.main import app
from umbel.connectors import Webhook, ref, source
from umbel.connectors.files import Files
from umbel.datasets import Count, dataset, field, pipeline
from umbel.dtypes import Tumbling
from umbel.errors import InvalidValue
from umbel.lib import inputs
from umbel.runtime.batch import MicroBatch, drain
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.progress import EventTimeProgress
from umbel.state.port import Stamp

__owner__ = "test@umbel.dev"

web = Webhook(name="web")
NOW = datetime.now(UTC).replace(microsecond=0)
FAR = datetime(2924, 1, 1, tzinfo=UTC)


@source(web.endpoint("A"), disorder="1h", cdc="append")
@dataset
class Event:
    k: int
    t: datetime


@dataset(index=True)
class PerMinute:
    k: int = field(key=True)
    n: int
    t: datetime

    @pipeline
    @inputs(Event)
    def count(cls, events):
        return events.groupby("k").aggregate(n=Count(window=Tumbling("1m")))


@source(web.endpoint("B"), disorder="1h", cdc="append", preproc={"t": ref("s")})
@dataset
class Moved:
    k: int
    t: datetime


@source(web.endpoint("C"), disorder="1h", cdc="upsert")
@dataset(index=True)
class Row:
    k: int = field(key=True)
    t: datetime


@dataset
class Rounded:
    k: int
    t: datetime

    @pipeline
    @inputs(Event)
    def round(cls, events):
        return events.transform(lambda df: df.assign(t=df["t"].where(df["k"] == 0, df["t"] - timedelta(hours=2))))


@pytest.fixture
def place(tmp_path: Path) -> Deployed:
    made = Deployed(tmp_path)
    made.commit([Event, PerMinute, Moved, Row])
    return made


def send(place: Deployed, endpoint: str, instants: Sequence[datetime], name: str = "t") -> None:
    place.log(endpoint, [{"k": number, name: at} for number, at in enumerate(instants)])
    drain(place.deployment)


def counts(place: Deployed, dataset: str) -> dict[str, int]:
    return {name: count for (of, name), count in place.deployment.catalog.counts().items() if of == dataset}


def letters(place: Deployed, dataset: str) -> list[DeadLetter]:
    return place.deployment.catalog.dead_letters(dataset)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


@pytest.mark.parametrize(("endpoint", "dataset", "name"), [("A", "Event", "t"), ("B", "Moved", "s"), ("C", "Row", "t")])
def test_one_event_of_a_far_future_makes_no_good_one_late(
    place: Deployed, endpoint: str, dataset: str, name: str
) -> None:
    send(place, endpoint, [ago(10), FAR], name)
    send(place, endpoint, [ago(9), ago(8)], name)
    send(place, endpoint, [ago(30)], name)
    assert counts(place, dataset) == {"rows": 4, "dead": 1, "dead_reason:ahead of time": 1}
    (letter,) = letters(place, dataset)
    assert (letter.field, letter.raw.count(b"2924")) == ("t", 1)
    assert letter.reason.startswith("event time 2924-01-01T00:00:00Z is ahead of ")


def test_it_closes_no_window(place: Deployed) -> None:
    send(place, "A", [ago(10), FAR])
    send(place, "A", [ago(8)])
    time = EventTimeProgress.of(place.deployment.catalog.progress(JOB, 10**9).state)
    assert max(time.newest.values()) == ago(8)
    assert max(time.stream_times.values()) == ago(8)
    end = ago(10).replace(second=0) + timedelta(minutes=1)
    assert place.lookup("PerMinute", [{"k": 0}], [end])[0]["n"] == 1


def test_a_day_ahead_is_allowed_and_the_bound_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC).replace(microsecond=0)  # not as of when the tests were collected, an hour ago
    ahead = [now + timedelta(hours=2), now + timedelta(hours=25)]
    for setting, dead in (("", 1), ("1h", 2), ("2d", 0), ("forever", 0)):
        if setting:
            monkeypatch.setenv("UMBEL_MAX_AHEAD", setting)
        place = Deployed(tmp_path / f"d{setting}")
        place.commit([Event])
        send(place, "A", ahead)
        assert counts(place, "Event").get("dead", 0) == dead
        assert Deployment.decode(place.deployment.encode()) == place.deployment
    for wrong in ("soon", "-1", "90000y"):
        monkeypatch.setenv("UMBEL_MAX_AHEAD", wrong)
        with pytest.raises(InvalidValue, match="UMBEL_MAX_AHEAD"):
            Deployment.at(tmp_path / "wrong")
    monkeypatch.setenv("UMBEL_MAX_AHEAD", "1d")
    monkeypatch.setenv("UMBEL_LATE_BYTES", "much")
    with pytest.raises(InvalidValue, match="UMBEL_LATE_BYTES"):
        Deployment.at(tmp_path / "wrong")


def test_a_batch_that_is_run_again_refuses_the_same_rows(place: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    send(place, "A", [ago(5)])
    place.log("A", [{"k": 0, "t": ago(4)}, {"k": 1, "t": NOW + timedelta(days=3)}])
    plans = place.deployment.plans()
    last = max(int(path.stem) for path in (place.deployment.directory / "plans").glob("*.json"))
    number, found = plans.next(last), []
    for days in (0, 10):  # the second run takes place when the row is no longer ahead
        clock = time.time_ns() + days * 86_400 * 10**9
        monkeypatch.setattr("umbel.runtime.plans.time.time_ns", lambda clock=clock: clock)
        assert plans.next(last) == number
        batch = MicroBatch.begin(place.deployment, place.deployment.plans().read(number), Stamp(9, 9))
        report = batch.run_here()
        found.append((report.counts, report.dead, report.taken))
    assert found[0] == found[1]
    assert found[0][0]["Event", "dead"] == 1


def test_late_rows_are_shown_by_the_command(place: Deployed) -> None:
    send(place, "A", [ago(0)])
    send(place, "A", [ago(600), ago(700)])
    shown = CliRunner().invoke(app, ["dead-letters", "Event", "--dir", str(place.deployment.directory)])
    assert shown.exit_code == 0, shown.output
    assert "late: event" in " ".join(shown.output.split())
    assert "2 in all" in shown.output
    assert "2 came too late so far" in shown.output


def test_history_in_files_may_be_of_any_time(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.jsonl").write_text('{"k": 1, "t": "2924-01-01T00:00:00Z"}\n')

    @source(Files(name="files", folder=str(tmp_path / "files")).path("*.jsonl"), disorder="1h", cdc="append")
    @dataset
    class Archive:
        k: int
        t: datetime

    place = Deployed(tmp_path / "umbel")
    place.commit([Archive])
    drain(place.deployment)
    assert counts(place, "Archive") == {"rows": 1}


def test_rows_too_late_are_counted_and_stored_with_their_reason(place: Deployed) -> None:
    send(place, "A", [ago(0)])
    send(place, "A", [ago(30), ago(61), ago(600)])
    assert counts(place, "Event") == {"rows": 2, "late": 2}
    newer, older = sorted(letters(place, "Event"), key=lambda each: each.raw)
    for letter, at in ((newer, ago(61)), (older, ago(600))):
        watermark = ago(60).isoformat().replace("+00:00", "Z")
        assert (
            letter.reason
            == f"late: event time {at.isoformat().replace('+00:00', 'Z')} is before the watermark {watermark}"
        )
        assert letter.field == "t"
        assert letter.position.startswith("web/A: segment")
    assert b'"k":1' in newer.raw
    assert b'"k":2' in older.raw


def test_the_newest_late_rows_are_stored_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMBEL_LATE_BYTES", "400")
    place = Deployed(tmp_path)
    place.commit([Event, Row])
    send(place, "C", [ago(0)])
    send(place, "C", [ago(600)])
    send(place, "A", [ago(0)])
    place.log_bytes("A", b'[{"k": "not a number", "t": 0}]', 1)
    for _ in range(3):
        send(place, "A", [ago(600)] * 50)
    retained = letters(place, "Event")
    late = [each for each in retained if each.reason.startswith("late: ")]
    assert counts(place, "Event") == {"rows": 1, "late": 150, "dead": 1, "dead_reason:wrong type": 1}
    assert 0 < sum(len(each.raw) for each in late) <= 400
    assert len(retained) == len(late) + 1
    bytes_of = [int(each.position.partition("byte ")[2].partition(",")[0]) for each in late]
    assert len(set(bytes_of)) == 1  # all of the last record
    assert len(letters(place, "Row")) == 1


def test_a_size_of_nothing_keeps_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMBEL_LATE_BYTES", "0")
    place = Deployed(tmp_path)
    place.commit([Event])
    send(place, "A", [ago(0)])
    send(place, "A", [ago(600)])
    assert counts(place, "Event") == {"rows": 1, "late": 1}
    assert letters(place, "Event") == []


def test_a_row_that_is_moved_behind_the_watermark_counts_and_is_reported_once(place: Deployed) -> None:
    place.commit([Event, PerMinute, Moved, Row, Rounded])
    events = lambda: [event.text for event in place.deployment.catalog.events()]  # noqa: E731
    send(place, "A", [ago(10)])
    assert events() == []
    for _ in range(2):
        send(place, "A", [ago(9), ago(8)])
    (event,) = events()
    assert event.endswith("If that matters, give the sources more disorder")
    assert event.startswith(
        f"transform in pipeline 'Rounded.round' has moved a row back to {ago(128):%Y-%m-%d %H:%M:%S}, "
    )
    assert place.changes("Rounded").height == 5
    found = {each.subject: each.found for each in deployed(SettingCheck(place.deployment.directory, "127.0.0.1", 1))}
    assert found["last warning"].endswith(event)
