"""Hudi tables that Hudi itself wrote, of both types and of two versions: as of each commit they are what Spark read."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.connectors.shop_datasets import deployed, letters, rows_of
from tests.unit.connectors.hudi_samples import OWN_MERGER, TABLES
from tests.unit.connectors.lakes import keyed, until
from umbel.connectors import Files
from umbel.connectors.hudi_source import HudiSource
from umbel.connectors.hudi_tables import HudiPlace
from umbel.connectors.versioned_source import KIND, moved_removed
from umbel.definitions.arguments import ReadOptions
from umbel.errors import InvalidValue, Transient

__owner__ = "shop@example.com"
SAMPLES = [f"{kind}{version}" for kind in TABLES for version in (6, 9)]


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hudi")
    with tarfile.open(Path(__file__).with_name("hudi_samples.tar.xz")) as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture
def copied(samples: Path, tmp_path: Path) -> Path:
    """Return a copy of the tables that may be damaged."""
    with tarfile.open(Path(__file__).with_name("hudi_samples.tar.xz")) as packed:
        packed.extractall(tmp_path / "lake", filter="data")
    return tmp_path / "lake"


class Table:
    """A table, read by its source."""

    def __init__(self, lake: Path, name: str, folder: Path) -> None:
        options = ReadOptions(
            directory=folder,
            key="k",
            dataset="Orders",
            cdc="native",
            every=10**6,
            disorder=0,
            columns=("id", "note"),
            keys=("id",),
            is_keyed=True,
        )
        self.source = HudiSource(HudiPlace(name, lambda: (str(lake / name / "orders"), {})), "orders", options)
        self.now: dict[int, str] = {}

    def load(self, commits: int) -> Mapping[str, Any]:
        """Read the rows as of some first commits."""
        state = self.source.first_state()
        done = state["instants"][:commits]
        state |= {"instant": done[-1], "instants": done}
        self.now = {}
        self.add(self.source.first_files(state), state)
        return state

    def add(self, files: Any, state: Mapping[str, Any]) -> None:
        frames = [rows for each in files for rows in self.source.server.rows(each, state["types"])]
        if not frames:
            return
        changes = moved_removed(pl.concat(frames))
        for key in changes.filter(pl.col(KIND) == "delete")["id"]:
            del self.now[key]
        new = changes.filter(pl.col(KIND) == "insert")
        assert not self.now.keys() & {*new["id"]}
        self.now |= dict(new.select("id", "note").rows())


def expected(lake: Path, name: str) -> dict[str, dict[int, str]]:
    found = json.loads((lake / "rows.json").read_text())[name]
    return {instant: dict(rows) for instant, rows in found.items()}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_table_is_what_spark_reads_as_of_each_commit(samples: Path, tmp_path: Path, name: str) -> None:
    table, rows, compared = Table(samples, name, tmp_path), expected(samples, name), 0
    commits = table.source.first_state()["instants"]
    for first in range(2 if "cleaned" in name else 1, len(commits) + 1):
        state = table.load(first)
        assert table.now == rows.get(commits[first - 1], table.now)
        for _, commit in table.source.versions(state):
            table.add(commit.files, state)
            assert table.now == rows.get(commit.instant, table.now)
            compared += commit.instant in rows
    assert compared >= 1
    assert commits[-1] in rows


@pytest.mark.parametrize("name", ["cleaned6", "cleaned9"])
def test_slices_that_hudi_has_cleaned_are_reported(samples: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError):
        Table(samples, name, tmp_path).load(1)


@pytest.mark.parametrize("loaded", [True, False], ids=["after the load", "before"])
@pytest.mark.parametrize(
    "name", ["cleaned9", "compacted6", "compacted9", "partitions6", "partitions9", "buckets6", "copied_buckets9"]
)
def test_each_deleted_file_is_reported_or_not_needed(copied: Path, tmp_path: Path, name: str, loaded: bool) -> None:
    rows, reported, first = expected(copied, name), 0, 2 if "cleaned" in name else 1
    for path in [each for each in (copied / name).rglob("*") if each.suffix == ".parquet" or ".log." in each.name]:
        content = path.read_bytes()
        table = Table(copied, name, tmp_path)
        state = table.load(first) if loaded else {}
        path.unlink()
        try:
            state = state or table.load(first)
            for _, commit in table.source.versions(state):
                table.add(commit.files, state)
                assert table.now == rows.get(commit.instant, table.now), path
        except FileNotFoundError:
            reported += 1
        path.write_bytes(content)
    assert reported >= 1


def test_a_deleted_file_of_an_archived_commit_is_reported(copied: Path, tmp_path: Path) -> None:
    place = copied / "copied_partitions9" / "orders"
    table = Table(copied, "copied_partitions9", tmp_path)
    state = table.load(2)
    (first,) = (place / ".hoodie" / "timeline").glob(f"{state['instants'][0]}_*.commit")
    first.unlink()
    for path in (place / "note=b").glob(f"*_{state['instants'][0]}.parquet"):
        path.unlink()
    with pytest.raises(FileNotFoundError):
        list(table.source.versions(state))


def test_compactions_and_clusterings_are_not_read(samples: Path, tmp_path: Path) -> None:
    for name in ("compacted6", "partitions9", "copied_partitions6"):
        table = Table(samples, name, tmp_path)
        commits = [commit for _, commit in table.source.versions(table.load(1))]
        assert sum(not commit.files for commit in commits) == 1


def test_rows_of_log_files_come_in_one_order(samples: Path, tmp_path: Path) -> None:
    table = Table(samples, "plain9", tmp_path)
    state = table.load(3)
    (file,) = table.source.first_files({**state, "instant": state["instants"][2]})
    assert file.slice.logs
    keys = pl.concat(table.source.server.rows(file, state["types"]))["id"].cast(pl.String)
    assert keys.to_list() == sorted(keys)


@pytest.mark.parametrize("commits", [2, 3, 4])
def test_commits_behind_a_pending_compaction_are_read_when_it_is_complete(
    copied: Path, tmp_path: Path, commits: int
) -> None:
    name, commits_folder = "compacted6", copied / "compacted6" / "orders" / ".hoodie"
    compaction = next(each for each in commits_folder.glob("*.commit") if '"compacted" : true' in each.read_text())
    content = compaction.read_text()
    compaction.unlink()
    last = max(commits_folder.glob("*.deltacommit"))
    last.rename(last.with_suffix(".later"))
    table, rows = Table(copied, name, tmp_path), expected(copied, name)
    if commits > 2:
        with pytest.raises(Transient, match="when the compaction"):
            table.load(commits)
    state = table.load(2)
    with pytest.raises(Transient, match="when the compaction"):
        list(table.source.versions(state))
    compaction.write_text(content)
    last.with_suffix(".later").rename(last)
    for _, commit in table.source.versions(state):
        table.add(commit.files, state)
        assert table.now == rows.get(commit.instant, table.now)
    assert table.now == rows[max(rows)]


def test_a_compaction_that_ends_late_is_no_second_writer(copied: Path, tmp_path: Path) -> None:
    commits_folder = copied / "compacted9" / "orders" / ".hoodie" / "timeline"
    compaction = next(each for each in commits_folder.glob("*.commit"))
    commits = sorted(commits_folder.glob("*.deltacommit"))
    for each in (compaction, commits[-1]):
        each.rename(each.with_suffix(".later"))
    table, rows = Table(copied, "compacted9", tmp_path), expected(copied, "compacted9")
    state = dict(table.load(4))
    for each in (compaction, commits[-1]):
        each.with_suffix(".later").rename(each)
    for _, commit in table.source.versions(state):
        table.add(commit.files, state)
    assert table.now == rows[max(rows)]


def test_a_table_with_a_merger_of_its_own_is_refused(samples: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="merged by a class of its own"):
        Table(samples, OWN_MERGER, tmp_path).load(2)


@pytest.mark.parametrize("name", ["compacted6", "partitions9"])
def test_a_dataset_follows_a_table_whose_rows_are_merged_on_read(copied: Path, tmp_path: Path, name: str) -> None:
    rows = expected(copied, name)
    folder = copied / name / "orders" / ".hoodie"
    commits_folder = folder / "timeline" if (folder / "timeline").is_dir() else folder
    hidden = [
        each
        for each in commits_folder.iterdir()
        if each.is_file() and each.name[:17].isdigit() and each.name[:17] > min(rows)
    ]
    for each in hidden:
        each.rename(each.with_name(f"later-{each.name}"))
    lake = Files(name="lake", folder=str(copied / name))

    class Lake:
        def table(self, name: str, _: Any = None) -> Any:
            return lake.path(name, format="hudi")

    with deployed(tmp_path, keyed(Lake())) as made:

        def stored() -> dict[int, str]:
            return dict(rows_of(made, "Orders", ["id", "note"]))

        until(made, lambda: stored() == rows[min(rows)])
        for each in hidden:
            each.with_name(f"later-{each.name}").rename(each)
        until(made, lambda: stored() == rows[max(rows)])
        assert letters(made) == []
