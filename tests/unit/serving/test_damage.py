"""What is missing or damaged is answered with 503 and a remedy, counted, and found by `umbel doctor`; never served."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.deployed import wait_until
from tests.unit.serving.conftest import DEPARTURES, Served, served_at
from umbel.cli.checks import SettingCheck, stored
from umbel.errors import Damaged
from umbel.log.file_checksums import SUMS, FileSums
from umbel.runtime.deployment import Deployment
from umbel.runtime.integrity import damage

QUERY = {"inputs": ["Origin.origin"], "outputs": ["Origin.departures"], "data": {"Origin.origin": ["JFK", "LGA"]}}
INSPECT = "/api/v1/dataset/Departure/inspect"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Return a server with rows in state, tail and table."""
    for each in served_at(tmp_path):
        graph = each.deployment.graph(each.deployment.catalog.latest())
        node = graph.outputs["Departure"]
        for number in range(5):
            assert each.log("departures", DEPARTURES).status_code == 200
            if number == 2:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr("umbel.runtime.changelogs.FLUSH_FILES", 1)
                    each.process()
                assert each.deployment.changes.sizes(node, until=100)
            else:
                each.process()
        assert list(damage(each.deployment, deep=True)) == []
        yield each


def log_of(served: Served) -> Path:
    graph = served.deployment.graph(served.deployment.catalog.latest())
    return served.deployment.directory / "changes" / graph.outputs["Departure"].log


def flipped(path: Path, place: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 4
    path.write_bytes(data)


def last_entry(served: Served) -> None:
    max((log_of(served) / "_delta_log").glob("*.json")).unlink()


def whole_table(served: Served) -> None:
    shutil.rmtree(log_of(served))


def delta_log(served: Served) -> None:
    shutil.rmtree(log_of(served) / "_delta_log")


def part_gone(served: Served) -> None:
    next(log_of(served).rglob("*.parquet")).unlink()


def part_flipped(served: Served) -> None:
    flipped(next(log_of(served).rglob("*.parquet")))


def last_of_tail(served: Served) -> None:
    max((log_of(served) / "_tail").glob("*.arrow")).unlink()


def first_of_tail(served: Served) -> None:
    min((log_of(served) / "_tail").glob("*.arrow")).unlink()


def tail_flipped(served: Served) -> None:
    flipped(min((log_of(served) / "_tail").glob("*.arrow")))


@pytest.mark.parametrize(
    "harm",
    [last_entry, whole_table, delta_log, part_gone, part_flipped, last_of_tail, first_of_tail, tail_flipped],
)
def test_a_change_log_that_is_damaged_is_not_read(served: Served, harm: Callable[[Served], None]) -> None:
    assert len(served.http.get(INSPECT).json()["data"]) == 4
    harm(served)
    refused = served.http.get(INSPECT)
    assert (refused.status_code, refused.json()["code"]) == (503, "damaged")
    assert "restore umbel's folder" in refused.json()["hint"]
    assert "Retry-After" not in refused.headers
    assert str(served.deployment.directory) not in refused.text
    assert 'umbel_damage_total{route="/api/v1/dataset/{name}/inspect"} 1.0' in served.http.get("/api/v1/metrics").text
    assert [each.code for each in damage(served.deployment, deep=True)] == ["damaged"]
    report = list(stored(SettingCheck(served.deployment.directory, "localhost", 1, deep=True)))
    assert [(each.subject, each.level) for each in report] == [("damage", "error")]
    assert served.post("/api/v1/query", QUERY).status_code == 200  # the state is whole


def test_state_that_is_gone_is_no_state_that_is_empty(served: Served) -> None:
    before = served.post("/api/v1/query", QUERY)
    assert before.status_code == 200
    folder = served.deployment.directory / "store"
    retained, refused = folder.with_name("kept"), 0
    for name in ("shard-000", "shard-001"):
        (folder / name).rename(retained)
        wait_until(lambda: list(damage(served.deployment)), lambda: "nothing was told")
        report = served.post("/api/v1/query", QUERY)
        assert report.json() == before.json() or (report.status_code, report.json()["code"]) == (503, "damaged")
        refused += report.status_code == 503
        assert [f"the state store/{name} is missing"] == [each.message for each in damage(served.deployment)]
        retained.rename(folder / name)
        assert served.post("/api/v1/query", QUERY).json() == before.json()
    assert refused


def test_a_store_that_is_gone_is_reported_by_the_next_server_and_worker(served: Served) -> None:
    shutil.rmtree(served.deployment.directory / "store")
    again = replace(served.deployment)
    with pytest.raises(Damaged, match=r"no .*store/store\.json"), again.store.snapshot(0):
        pass
    assert len(list(damage(again))) == again.shards
    served.log("departures", DEPARTURES)
    with pytest.raises(Damaged):
        served.process()
    again.store.close()


def test_a_catalog_that_is_gone_is_not_made_anew(served: Served) -> None:
    folder = served.deployment.directory
    for path in folder.glob("catalog.db*"):
        path.unlink()
    with pytest.raises(
        Damaged, match=r"catalog is missing: there is store/store.json, plans, changes and no catalog.db"
    ):
        Deployment.at(folder)
    assert not (folder / "catalog.db").exists()
    assert [each.level for each in stored(SettingCheck(folder, "localhost", 1))] == ["error"]


@pytest.mark.parametrize("place", ["", "piece", "-60", "-1", "-12", "-18"])
def test_definitions_and_progress_that_changed_are_not_believed(served: Served, place: str) -> None:
    folder = served.deployment.directory
    with sqlite3.connect(folder / "catalog.db") as connection:
        if place:
            column, table = ("data", "definition_pieces") if place == "piece" else ("definitions", "commits")
            (data,) = connection.execute(f"SELECT {column} FROM {table}").fetchone()
            harmed = bytearray(data)
            harmed[100 if place == "piece" else int(place)] ^= 1
            connection.execute(f"UPDATE {table} SET {column} = ?", (bytes(harmed),))
        else:
            connection.execute("""UPDATE batches SET progress = replace(progress, '"plan": ', '"plan": 1')""")
    connection.close()
    again = replace(served.deployment)
    with pytest.raises(Damaged, match=r"the catalog is damaged: the (definitions of revision 1|progress of batch)"):
        again.catalog.definitions(1) if place else again.catalog.progress("live", 1000)
    again.catalog.close()


def test_a_catalog_whose_pages_are_damaged_is_reported(served: Served) -> None:
    with sqlite3.connect(served.deployment.directory / "catalog.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with (served.deployment.directory / "catalog.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 30_000)
    assert any(each.code == "damaged" for each in damage(replace(served.deployment)))


def test_files_that_merging_made_have_checksums(served: Served) -> None:
    graph = served.deployment.graph(served.deployment.catalog.latest())
    node = graph.outputs["Departure"]
    served.deployment.changes.flush(node, everything=True)
    log = served.deployment.changes._log(node)
    assert log.compact() > 1
    rows = served.deployment.changes.read(node).height
    assert rows == 5 * len(DEPARTURES)
    (name,) = FileSums(log.path).noted or ()
    flipped(log.path / name)
    with pytest.raises(Damaged, match="is not as it was written"):
        served.deployment.changes.read(node)
    assert SUMS in {path.name for path in log.path.iterdir()}


def damaged_journal(served: Served) -> None:
    for path in (served.deployment.directory / "store").glob("shard-*/journal/*"):
        flipped(path, 0)


def damaged_plan(served: Served) -> None:
    flipped(max((served.deployment.directory / "plans").glob("*.json"), key=lambda path: path.stat().st_mtime_ns))


@pytest.mark.parametrize(("harm", "part"), [(damaged_journal, "state"), (damaged_plan, "lag")])
def test_damage_hides_no_other_metrics(served: Served, harm: Callable[[Served], None], part: str) -> None:
    """All metrics were refused, and with them the state of the worker and the count of refused requests."""
    before = served.http.get("/api/v1/metrics").text
    assert f'umbel_metrics_missing{{part="{part}"}} 0.0' in before
    served.log("departures", DEPARTURES)
    harm(served)
    found = served.http.get("/api/v1/metrics")
    assert found.status_code == 200, found.text
    missing = [
        line for line in found.text.splitlines() if line.startswith("umbel_metrics_missing") and line.endswith(" 1.0")
    ]
    assert missing == [f'umbel_metrics_missing{{part="{part}"}} 1.0']
    assert 'umbel_worker_state{state="never started"} 1.0' in found.text
    assert 'umbel_dataset_rows{dataset="Departure",outcome="rows"}' in found.text
