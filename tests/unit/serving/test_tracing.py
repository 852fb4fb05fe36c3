"""Traces over HTTP: those of the mock client, with micro-batches and positions in sources."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.deployed import wait_until
from tests.unit.serving.asgi import serving_admin
from tests.unit.serving.conftest import NOON, Served
from tests.unit.serving.flights import DelayOfOrigin, Origin, Plane
from umbel.api.commit import check_commit
from umbel.catalog.landmarks import Landmarks
from umbel.client import Client
from umbel.connectors import Files, source
from umbel.datasets import Count, Dataset, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.runtime.commit import commit
from umbel.runtime.deployment import JOB, Deployment
from umbel.serving.tracing import TraceResponse
from umbel.state.port import Fenced

__owner__ = "tests@example.com"
LATER = "2013-12-01T16:00:00Z"


def client_of(served: Served) -> Client:
    return Client("http://umbel", transport=served.transport)


def one(found: Any) -> dict[str, Any]:
    (lookup,) = found.lookups
    return dict(lookup)


def test_a_feature_is_traced_to_the_rows_of_an_endpoint(flights: Served) -> None:
    found = client_of(flights).trace([Origin.average], {Origin.origin: "JFK"}, at=LATER)
    assert (found.at, found.values) == (LATER, {"Origin.average": 20.0})
    lookup = one(found)
    assert (lookup["dataset"], lookup["values"]) == ("DelayOfOrigin", {"average": 20.0, "at": "2013-12-01T15:00:00Z"})
    (tiles,) = lookup["tiles"]
    assert (tiles["rows"], tiles["values"]) == ([1, 1], {"average": [30.0, 10.0]})
    (changes,) = lookup["rows"]
    assert changes["data"]["delay"] == [30, 10]
    assert changes["source"] == [[f"Webhook 'events': events/departures, row {row}"] for row in (0, 1)]
    assert changes["batch"] == [0, 0]
    assert "batch" in str(found)


def test_a_version_is_traced_to_its_batch_and_row(fresh: Served) -> None:
    for seats in (10, 20):
        rows = [{"tailnum": name, "seats": seats, "at": f"2013-12-01T{seats}:00:00Z"} for name in ("N1", "N2")]
        assert fresh.log("planes", rows).status_code == 200
        fresh.process()
    (changes,) = one(client_of(fresh).trace_row(Plane, {"tailnum": "N2"}, at=LATER))["rows"]
    assert (changes["data"]["seats"], changes["batch"]) == ([10], [0])
    (changes,) = one(client_of(fresh).trace_row("Plane", {"tailnum": "N2"}))["rows"]
    begun = [row for row, weight in enumerate(changes["weight"]) if weight > 0]
    assert [changes["batch"][row] for row in begun] == [0, 1]
    assert [changes["source"][row] for row in begun] == [
        [f"Webhook 'events': events/planes, row {row}"] for row in (1, 3)
    ]


def test_late_rows_name_the_batch_they_arrived_in(fresh: Served) -> None:
    for at in ("2013-12-01T14:00:00Z", NOON):
        fresh.log("departures", [{"origin": "JFK", "delay": 1, "ratio": None, "at": at}])
        fresh.process()
    (changes,) = one(client_of(fresh).trace_row(DelayOfOrigin, {"origin": "JFK"}, at=LATER))["rows"]
    assert (changes["at"], changes["batch"]) == ([NOON, "2013-12-01T14:00:00Z"], [1, 0])


def file_entities(folder: Path) -> list[Any]:
    """Return a dataset that files feed, and its counts."""

    @source(Files(name="files", folder=str(folder)).path("*.jsonl"), disorder="1d", cdc="append", every="1s")
    @dataset
    class Event:
        kind: str
        at: datetime

    @index
    @dataset
    class Kinds:
        kind: str = field(key=True)
        events: int
        at: datetime

        @pipeline
        @inputs(Event)
        def counted(cls, events: Dataset):
            return events.groupby("kind").aggregate(events=Count(window=Continuous("forever")))

    return [Event, Kinds]


def write(path: Path, *kinds: str) -> None:
    path.write_text("".join(f'{{"kind": "{kind}", "at": "{NOON}"}}\n' for kind in kinds))


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[tuple[Served, Path]]:
    """Return a server of files, and the files' folder."""
    (folder := tmp_path / "files").mkdir()
    deployment = Deployment.at(tmp_path / "umbel", shards=2)
    commit(deployment, check_commit(file_entities(folder), []))
    with serving_admin(deployment) as transport, httpx.Client(transport=transport, base_url="http://umbel") as http:
        yield Served(deployment, transport, http), folder
    deployment.store.close()
    deployment.catalog.close()


def sources(served: Served, kind: str) -> list[list[str]]:
    (changes,) = one(client_of(served).trace_row("Kinds", {"kind": kind}, rows=1000))["rows"]
    return sorted(changes["source"])


def test_rows_are_traced_to_files(counted: tuple[Served, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    served, folder = counted
    write(folder / "b.jsonl", "x", "y")
    served.process()
    write(folder / "c.jsonl", "y", "x", "x")
    wait_until(served.process, lambda: "the second file was not read")
    where = [[f"Files 'files': {row}"] for row in ("b.jsonl: row 0", "c.jsonl: row 1", "c.jsonl: row 2")]
    assert sources(served, "x") == where
    for path in folder.iterdir():
        path.unlink()
    assert sources(served, "x") == where


def test_rows_of_large_files_are_traced_to_their_parts(
    counted: tuple[Served, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, folder = counted
    monkeypatch.setattr("umbel.connectors.file_source.SPLIT_BYTES", 200)
    write(folder / "a.jsonl", *(f"k{number % 10}" for number in range(20)))
    served.process()
    for number in range(10):
        text = " ".join(where for (where,) in sources(served, f"k{number}"))
        assert text.count("a.jsonl: row ") == 2, text


def test_a_row_that_came_twice_has_both_positions_apart(counted: tuple[Served, Path]) -> None:
    served, folder = counted
    for name in ("a", "b"):
        write(folder / f"{name}.jsonl", "x")
    served.process()
    assert sources(served, "x") == [["Files 'files': a.jsonl: row 0"], ["Files 'files': b.jsonl: row 0"]]


def test_a_batch_that_is_run_again_names_the_same_files(counted: tuple[Served, Path]) -> None:
    served, folder = counted
    write(folder / "a.jsonl", "x")
    served.process()
    catalog = served.deployment.catalog
    key, epoch = next(each.key for each in served.deployment.graph(1).sources()), catalog.take_over(JOB)
    for _ in range(2):  # as after a restart
        landmarks = Landmarks(catalog)
        assert before(landmarks, key, 5) == (0, "0 a.jsonl")
        landmarks.note({key: [(0, "0 a.jsonl"), (7, "0 a.jsonl")], "another": []}, JOB, epoch)
    assert before(landmarks, key, 9) == (0, "0 a.jsonl")
    assert before(landmarks, key, -1) is None
    assert before(landmarks, "another", 9) is None


def before(landmarks: Landmarks, source: str, number: int) -> tuple[int, str] | None:
    return landmarks.before(source, [number])[number]


def test_landmarks_of_partitions_are_noted_when_they_change(fresh: Served) -> None:
    catalog = fresh.deployment.catalog
    epoch, one, two = catalog.take_over(JOB), 0, 1 << 44
    for found in (
        [(one, "0 -5"), (two, "1 0")],
        [(one + 9, "0 -5"), (two + 9, "1 0")],
        [(one + 20, "0 3"), (two + 30, "1 0")],
    ):
        Landmarks(catalog).note({"topic": found}, JOB, epoch)
    landmarks = Landmarks(catalog)
    numbers = [one, one + 19, one + 20, two - 1, two, two + 99]
    assert [landmarks.before("topic", numbers)[number] for number in numbers] == [
        (one, "0 -5"),
        (one, "0 -5"),
        (one + 20, "0 3"),
        (one + 20, "0 3"),
        (two, "1 0"),
        (two, "1 0"),
    ]


def test_only_the_owner_of_a_job_notes_landmarks(fresh: Served) -> None:
    catalog = fresh.deployment.catalog
    old, new = catalog.take_over(JOB), catalog.take_over(JOB)
    with pytest.raises(Fenced):
        Landmarks(catalog).note({"files": [(0, "0 a")]}, JOB, old)
    Landmarks(catalog).note({"files": [(number, f"0 {number}") for number in range(1200)]}, JOB, new)
    Landmarks(catalog).note({"files": [(5, "0 other")]}, JOB, new)
    assert [Landmarks(catalog).before("files", [4, 5, 1199])[number] for number in (4, 5, 1199)] == [
        (4, "0 4"),
        (5, "0 other"),
        (1199, "0 1199"),
    ]


def test_erased_rows_are_not_shown(fresh: Served) -> None:
    fresh.log("planes", [{"tailnum": "N1", "seats": 1, "at": NOON}])
    fresh.process()
    assert one(client_of(fresh).trace_row(Plane, {"tailnum": "N1"}))["rows"][0]["count"] == 1


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        (
            "trace",
            {"inputs": ["Origin.origin"], "outputs": ["Origin"], "data": {"Origin.origin": ["a", "b"]}},
            400,
            "one row",
        ),
        ("trace", {"inputs": ["Origin.origin"], "outputs": ["Origin"], "data": {"Origin.origin": []}}, 400, "one row"),
        (
            "trace",
            {"inputs": ["Origin.origin"], "outputs": ["Origins"], "data": {"Origin.origin": ["a"]}},
            404,
            "Origin",
        ),
        ("trace", {"inputs": [], "outputs": []}, 400, "data"),
        ("dataset/DelayOfOrigin/trace", {"keys": [{"origin": "a"}], "rows": -1}, 400, "rows"),
        ("dataset/DelayOfOrigin/trace", {"keys": [{"origin": "a"}], "rows": "many"}, 400, "rows"),
        ("dataset/DelayOfOrigin/trace", {"keys": []}, 400, "one row"),
        ("dataset/DelayOfOrigin/trace", {"keys": [{"origins": "a"}]}, 400, "origin"),
        ("dataset/DelayOfOrigin/trace", {"keys": [{"origin": "a"}], "as_of": "soon"}, 400, "soon"),
        ("dataset/Departure/trace", {"keys": [{"origin": "a"}]}, 400, "index"),
        ("dataset/Nothing/trace", {"keys": [{"origin": "a"}]}, 404, "Nothing"),
    ],
)
def test_wrong_requests_have_a_remedy(flights: Served, path: str, body: Any, status: int, text: str) -> None:
    answer = flights.post(f"/api/v1/{path}", body)
    assert (answer.status_code, text in answer.text) == (status, True), answer.text


def test_the_answer_has_the_described_form(flights: Served) -> None:
    body = {"inputs": ["Origin.origin"], "outputs": ["Origin"], "data": {"Origin.origin": ["JFK"]}, "as_of": LATER}
    answer = flights.post("/api/v1/trace", body)
    msgspec.json.decode(answer.content, type=TraceResponse)
