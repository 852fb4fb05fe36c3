"""Maintenance: what is old and read goes, what somebody may still read stays."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from umbel.connectors.webhook import EndpointSource, Webhook
from umbel.graph.graph import KeyedSource
from umbel.log.ingest import IngestLog
from umbel.log.reading import IngestReader
from umbel.log.segments import LogPosition, segments_in
from umbel.runtime import maintenance as maintenance_module
from umbel.runtime.maintenance import Maintenance, expire
from umbel.runtime.plans import BatchPlan


@dataclass
class Place:
    """Stands in for a deployment."""

    directory: Path
    datasets: dict[str, Any]
    tidied: list[int] = field(default_factory=list)
    events: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def changes(self) -> Any:
        return SimpleNamespace(tidy=lambda node: self.tidied.append(node.number))

    @property
    def catalog(self) -> Any:
        return SimpleNamespace(record_event=lambda *args: self.events.append(args))

    def graph(self, revision: int) -> Any:
        if revision == 13:
            raise RuntimeError("no such revision")
        nodes = [SimpleNamespace(number=n, is_logged=n != 1, dataset=None) for n in range(3)]
        return SimpleNamespace(sources=self._sources, nodes=nodes)

    def _sources(self) -> Any:
        for name, each in self.datasets.items():
            for ordinal, source in enumerate(each.sources):
                yield KeyedSource(name, ordinal, f"{name}@1/{ordinal}", source)


def dataset(name: str, *endpoints: str) -> Any:
    hook = Webhook(name="web", retention="1d")
    sources = [SimpleNamespace(connector=hook.endpoint(each)) for each in endpoints]
    return SimpleNamespace(name=name, version=1, sources=sources)


@pytest.fixture
def place(tmp_path: Path) -> Any:
    for endpoint in "ab":
        log = IngestLog(tmp_path, "web", endpoint, segment_bytes=100)
        for number in range(20):
            log.append_blocking(b"[%d]" % number, 1)
        log.close()
        for number, segment in enumerate(segments_in(tmp_path / "ingest" / "web" / endpoint)):
            os.utime(segment.path, (number, number))
    return Place(tmp_path, {"A": dataset("A", "a", "b"), "B": dataset("B", "a")})


def first(place: Any, endpoint: str) -> int:
    return IngestReader(place.directory, "web", endpoint).start().segment


def positions(**rows: int) -> dict[str, Any]:
    return {key.replace("_", "@1/"): LogPosition(segment, 32, 0).to_json() for key, segment in rows.items()}


def test_only_what_every_reader_has_read_goes(place: Any) -> None:
    expire(place, place.graph(1), positions(A_0=4, A_1=5))
    assert (first(place, "a"), first(place, "b")) == (1, 5)
    expire(place, place.graph(1), positions(A_0=4, A_1=5, B_0=3))
    assert (first(place, "a"), first(place, "b")) == (3, 5)


def test_what_is_young_stays(place: Any) -> None:
    segment = segments_in(place.directory / "ingest" / "web" / "b")[1]
    os.utime(segment.path)
    expire(place, place.graph(1), positions(A_1=5))
    assert [each.number for each in segments_in(place.directory / "ingest" / "web" / "b")][:2] == [2, 3]


def test_a_pass_is_made_once_per_period_and_looks_one_pass_back(place: Any) -> None:
    now = [0.0]
    maintenance = Maintenance(place, 10, lambda: now[0])
    for at, reached in ((1.0, 2), (11.0, 3), (15.0, 4), (22.0, 5)):
        now[0] = at
        maintenance.after(BatchPlan(1, 1, (), positions(A_0=reached, A_1=reached, B_0=reached)))
        maintenance.wait()
    assert place.tidied == [0, 2, 0, 2]
    assert (first(place, "a"), first(place, "b")) == (3, 3)
    assert place.events == []


def test_the_first_pass_is_soon_after_the_start(place: Any) -> None:
    """A worker that was started anew every hour never deleted events that were read."""
    now = [0.0]
    maintenance = Maintenance(place, clock=lambda: now[0])
    found = list[tuple[int, list[int]]]()
    for at, reached in ((1.0, 2), (299.0, 3), (301.0, 4), (3600.0, 5)):
        now[0] = at
        maintenance.after(BatchPlan(1, 1, (), positions(A_0=reached, A_1=reached, B_0=reached)))
        maintenance.wait()
        found.append((first(place, "a"), list(place.tidied)))
    assert found == [(1, []), (1, []), (2, [0, 2]), (2, [0, 2])]


def test_a_pass_that_fails_is_reported(place: Any) -> None:
    now = [0.0]
    maintenance = Maintenance(place, 10, lambda: now[0])
    now[0] = 11.0
    maintenance.after(BatchPlan(1, 13, (), {}))
    maintenance.wait()
    assert place.events == [("work", "error", "maintenance: no such revision")]


def test_what_fails_does_not_stop_the_rest_of_a_pass(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One damaged log let all others grow: nothing behind it was deleted, merged or dropped."""
    now, done = [0.0], list[str]()

    def expires(source: EndpointSource, *arguments: Any) -> None:
        if source.connector.endpoint == "a":
            raise OSError("the log of a is damaged")
        done.append(source.connector.endpoint)

    def tidies(node: Any) -> None:
        if node.number == 0:
            raise OSError("a file of log 0 is missing")
        done.append(f"log {node.number}")

    monkeypatch.setattr(EndpointSource, "expire", expires)
    monkeypatch.setattr(Place, "changes", property(lambda _: SimpleNamespace(tidy=tidies)))
    monkeypatch.setattr(maintenance_module, "expire_features", lambda *_: done.append("features"))
    monkeypatch.setattr(maintenance_module, "drop_changes", lambda *_: done.append("changes"))
    maintenance = Maintenance(place, 10, lambda: now[0])
    now[0] = 11.0
    maintenance.after(BatchPlan(1, 1, (), {}))
    maintenance.wait()
    assert done == ["b", "features", "log 2", "changes"]
    assert [text for _, _, text in place.events] == [
        "maintenance: the log of a is damaged",
        "maintenance: a file of log 0 is missing",
    ]
