"""Back-pressure: events are refused while too many wait, and accepted again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.serving.conftest import DEPARTURES, Served, served_at
from umbel.processes.status import RUNNING, forget_status, write_status

PATIENCE = 120.0


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("UMBEL_BACKLOG_BYTES", "2KiB")
    monkeypatch.setenv("UMBEL_BACKLOG_AGE", "1s")
    yield from served_at(tmp_path)


def test_events_are_refused_until_some_are_processed(limited: Served) -> None:
    """No worker has ever been here: age does not count, bytes do."""
    sent = 0

    def refused() -> bool:
        nonlocal sent
        answer = limited.log("departures", DEPARTURES)
        sent += answer.status_code == 200
        if answer.status_code == 429:
            assert answer.headers["retry-after"] == "5"
            assert answer.json()["code"] == "overloaded"
            assert "bytes of events wait to be processed, the limit is 2,048" in answer.json()["message"]
            assert "events/departures" in answer.json()["message"]
        return answer.status_code == 429

    wait(refused)
    deep = limited.http.get("/readyz?deep")
    assert (deep.status_code, deep.json()["code"]) == (503, "unhealthy")
    assert "the limit is 2,048" in deep.json()["message"]
    lag = deep.json()["lag"]
    assert lag["rows"] == lag["endpoints"]["events/departures"]["rows"] == 3 * sent
    figures = limited.http.get("/api/v1/metrics").text
    assert f'umbel_lag_rows{{endpoint="departures",webhook="events"}} {3 * sent}.0' in figures
    assert "umbel_events_refused 1.0" in figures
    assert limited.http.get("/readyz").json() == {"status": "ready", "revision": 1}
    assert limited.log("delays", []).status_code != 429
    limited.process()
    wait(lambda: limited.log("departures", DEPARTURES).status_code == 200)


def test_events_that_wait_too_long_keep_others_out_where_a_worker_has_been(limited: Served) -> None:
    assert limited.log("departures", DEPARTURES[:1]).status_code == 200
    write_status(limited.deployment.directory, RUNNING)
    wait(lambda: "events have waited for" in limited.http.get("/readyz?deep").json().get("message", ""))
    assert "events have waited for" in limited.log("departures", DEPARTURES[:1]).json()["message"]
    limited.process()
    wait(lambda: not _refused(limited))
    forget_status(limited.deployment.directory)


def _refused(served: Served) -> bool:
    return served.log("departures", DEPARTURES[:1]).status_code == 429


def test_a_disk_that_is_nearly_full_takes_no_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMBEL_DISK_RESERVE", "900TiB")
    served = served_at(tmp_path)
    full = next(served)
    wait(lambda: _refused(full))
    answer = full.log("departures", DEPARTURES).json()
    assert "the disk is nearly full" in answer["message"]
    assert "UMBEL_DISK_RESERVE" in answer["hint"]
    served.close()


def test_accepting_reads_nothing_to_know_the_backlog(fresh: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def look(_: object) -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr("umbel.serving.backlog.Backlog.look", look)
    begun = time.monotonic()
    for _ in range(200):
        assert fresh.log("departures", DEPARTURES).status_code == 200
    assert looks <= 2 + (time.monotonic() - begun)  # once a second, whatever is accepted


def test_history_that_a_new_dataset_reads_is_no_backlog(limited: Served) -> None:
    from umbel.runtime.freshness import backlogs, lags
    from umbel.runtime.plans import Plans

    place = limited.deployment
    limited.log("departures", DEPARTURES)
    limited.process()
    read, endpoint = Plans.read, ("events", "departures")
    with pytest.MonkeyPatch.context() as patch:  # as if its dataset had been committed just now
        patch.setattr(Plans, "read", lambda plans, number: _without_positions(read(plans, number)))
        assert lags(place)[endpoint].rows == 3
        assert backlogs(place)[endpoint].rows == 0
        limited.log("departures", DEPARTURES[:1])
        assert lags(place)[endpoint].rows == 4
        assert backlogs(place)[endpoint].rows == 1


def _without_positions(plan: object) -> object:
    from dataclasses import replace

    return replace(plan, positions={})  # type: ignore[type-var]
