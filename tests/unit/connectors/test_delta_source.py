"""Delta tables as sources: each version once, changes by the change data feed, and whatever is missing is reported."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.connectors.shop_datasets import deployed, letters, orders, process, rows_of
from tests.deployed import Deployed
from tests.unit.connectors.lakes import keyed, keyless, until
from umbel.api.dataset import redefined
from umbel.connectors import Files, ref, source
from umbel.connectors.delta_tables import DataFile, local_place
from umbel.connectors.polling import stop_polling
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal as DecimalOf
from umbel.errors import InvalidValue, UmbelError

__owner__ = "shop@example.com"
FEED = {"delta.enableChangeDataFeed": "true"}
START = datetime.now(UTC).replace(microsecond=0) - timedelta(days=10)  # a deletion is an event of its own instant


class Lake:
    """A folder with the table `orders`, and its dataset by table and connector."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = str(folder / "orders")

    def table(self, name: str, _: Any = None) -> Any:
        return Files(name="lake", folder=str(self.folder)).path(name, format="delta")

    def add(self, ids: Sequence[int], note: str = "new", **options: Any) -> None:
        write_deltalake(self.path, table(ids, note), **{"mode": "append", **options})

    @property
    def opened(self) -> DeltaTable:
        return DeltaTable(self.path)

    def upsert(self, ids: Sequence[int], note: str) -> None:
        merge = self.opened.merge(table(ids, note), "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def rows(self) -> list[tuple[Any, ...]]:
        rows = self.opened.to_pyarrow_table().to_pylist()
        return sorted((each["id"], each["note"], each["updated_at"]) for each in rows)


def table(ids: Sequence[int], note: str) -> Any:
    at = [START + timedelta(minutes=number) for number in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "note": [note] * len(ids), "updated_at": at})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@contextlib.contextmanager
def reading(lake: Lake, tmp_path: Path, *datasets: Any) -> Iterator[Deployed]:
    with deployed(tmp_path, *datasets) as made:
        yield made


def taken(made: Deployed, name: str = "Orders") -> list[tuple[Any, ...]]:
    if name == "Orders":
        return rows_of(made, name, ["id", "note", "updated_at"])
    return sorted(made.changes(name).select("id", "note", "updated_at").rows())


def reasons(made: Deployed) -> list[str]:
    return [each.reason for each in letters(made)]


def test_a_keyed_dataset_is_what_the_table_is(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(100), configuration=FEED)
    with reading(lake, tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        lake.add(range(100, 120))
        lake.opened.update(predicate="id < 10", updates={"note": "'changed'"})
        lake.opened.delete("id >= 20 AND id < 30")
        lake.upsert(range(25, 130), "merged")
        lake.opened.update(predicate="id = 3", updates={"id": "-id"})
        lake.opened.optimize.compact()
        until(made, lambda: taken(made) == lake.rows())
        write_deltalake(lake.path, table(range(5), "over"), mode="overwrite")
        lake.add([7], "again")
        until(made, lambda: taken(made) == lake.rows())
        assert reasons(made) == []


def test_a_keyless_dataset_has_each_inserted_row_once(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(10))
    with reading(lake, tmp_path, keyless(lake)) as made:
        until(made, lambda: len(taken(made, "Copies")) == 10)
        for first in (10, 20):
            lake.add(range(first, first + 10))
            lake.opened.optimize.compact()
        until(made, lambda: len(taken(made, "Copies")) == 30)
        process(made, 1.5)
        assert taken(made, "Copies") == lake.rows()
        assert reasons(made) == []


def test_changes_of_rows_of_a_keyless_dataset_are_reported(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(10), configuration=FEED)
    with reading(lake, tmp_path, keyless(lake)) as made:
        until(made, lambda: len(taken(made, "Copies")) == 10)
        lake.opened.update(predicate="id = 1", updates={"note": "'changed'"})
        lake.opened.delete("id = 2")
        lake.add([10])
        until(made, lambda: len(taken(made, "Copies")) == 11 and len(letters(made)) == 2)
        assert sorted(each.partition(" of a row")[0] for each in reasons(made)) == ["a deletion", "an update"]


def test_changes_without_a_feed_are_refused_by_the_property(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(10))
    with deployed(tmp_path) as made:
        with pytest.raises(InvalidValue, match="no change data feed") as caught:
            made.commit([keyed(lake)])
        assert "delta.enableChangeDataFeed = true" in str(caught.value)
    with reading(lake, tmp_path / "keyless", keyless(lake)) as made:
        until(made, lambda: len(taken(made, "Copies")) == 10)
        lake.add([10])
        lake.opened.delete("id = 2")
        until(made, lambda: len(letters(made)) == 1)
        assert "version 2: it changes or deletes rows" in reasons(made)[0]
        assert "delta.enableChangeDataFeed = true" in reasons(made)[0]
        assert len(taken(made, "Copies")) == 11


def stopped(tmp_path: Path) -> None:
    stop_polling(tmp_path)


def test_vacuumed_changes_are_reported(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(10), configuration=FEED)
    with reading(lake, tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        stopped(tmp_path)
        lake.add([10])
        lake.opened.update(predicate="id = 1", updates={"note": "'changed'"})
        for each in Path(lake.path, "_change_data").rglob("*.parquet"):
            each.unlink()
        until(made, lambda: len(letters(made)) == 1)
        assert "files of version 2 were deleted (by VACUUM)" in reasons(made)[0]
        assert "as a new version" in reasons(made)[0]
        assert len(taken(made)) == 11


def test_a_cleaned_up_log_is_reported(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(10), configuration=FEED)
    with reading(lake, tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        stopped(tmp_path)
        lake.add([10])
        lake.add([11])
        lake.opened.create_checkpoint()
        for version in (0, 1):
            Path(lake.path, "_delta_log", f"{version:020}.json").unlink()
        until(made, lambda: len(letters(made)) == 1)
        assert "version 1 is missing in the table's log" in reasons(made)[0]
        assert len(taken(made)) == 10


@pytest.mark.parametrize("change", ["made anew", "restored", "gone"])
def test_another_table_in_its_place_is_reported(lake: Lake, tmp_path: Path, change: str) -> None:
    import shutil

    lake.add(range(10), configuration=FEED)
    if change == "restored":
        shutil.copytree(lake.path, f"{lake.path}.copy")
    lake.add([10])
    with reading(lake, tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        stopped(tmp_path)
        shutil.rmtree(lake.path)
        if change == "made anew":
            for number in range(4):
                lake.add([number], configuration=FEED if not number else None)
        if change == "restored":
            shutil.copytree(f"{lake.path}.copy", lake.path)
        until(made, lambda: len(letters(made)) == 1)
        expected = {
            "made anew": "was made anew",
            "restored": "read up to version 1, and has 0",
            "gone": "no Delta table",
        }
        assert expected[change] in reasons(made)[0]
        assert len(taken(made)) == 11


def test_added_columns_are_ignored(lake: Lake, tmp_path: Path) -> None:
    lake.add(range(3), configuration=FEED)
    with reading(lake, tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        more = table([3], "new").append_column("further", pa.array(["x"]))
        write_deltalake(lake.path, more, mode="append", schema_mode="merge")
        write_deltalake(lake.path, table([4], "new"), mode="append", schema_mode="merge")
        lake.opened.update(predicate="id = 1", updates={"further": "'y'"})
        until(made, lambda: taken(made) == lake.rows())
        assert reasons(made) == []


@pytest.mark.parametrize("change", ["dropped", "retyped"])
def test_other_changes_of_columns_are_reported(lake: Lake, tmp_path: Path, change: str) -> None:
    lake.add(range(3), configuration=FEED)
    with reading(lake, tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        stopped(tmp_path)
        lake.add([3])
        other = table([4], "5").drop_columns(["note"])
        if change == "retyped":
            other = other.append_column("note", pa.array([5], pa.int32()))
        write_deltalake(lake.path, other, mode="overwrite", schema_mode="overwrite")
        until(made, lambda: len(letters(made)) == 1)
        expected = {
            "dropped": "column 'note' was dropped",
            "retyped": "column 'note' was of type string, and is of integer",
        }
        assert expected[change] in reasons(made)[0]
        assert len(taken(made)) == 4


def wide(lake: Lake) -> Any:
    @source(lake.table("wide"), disorder="60d", cdc="native", every="1s")
    @dataset(index=True)
    class Wide:
        id: int = field(key=True)
        place: str
        day: date
        part: int
        exact: DecimalOf[2]
        score: float | None
        tags: list[str]
        at: datetime

    return Wide


def test_types_and_partitions_keep_their_values(lake: Lake, tmp_path: Path) -> None:
    rows = {
        "id": [1, 2, 3],
        "place": ["a b/ü=%", "x", "x"],
        "day": [date(2026, 1, 1), date(1969, 12, 31), date(2026, 1, 1)],
        "part": pa.array([1, -2, 3], pa.int32()),
        "exact": [Decimal("1.50"), Decimal("-0.01"), Decimal("2.00")],
        "score": pa.array([0.1, None, float("nan")]),
        "tags": [["a"], [], ["b", "c"]],
        "at": pa.array([START] * 3, pa.timestamp("us", "UTC")),
    }
    path = str(lake.folder / "wide")
    write_deltalake(path, pa.table(rows), partition_by=["place", "day", "part", "at"], configuration=FEED)
    definition = redefined(cast("Any", wide(lake)), name="Wide")
    with reading(lake, tmp_path, definition) as made:
        until(made, lambda: made.taken().get("Wide") == 3)
        DeltaTable(path).delete("id = 1")
        DeltaTable(path).update(predicate="id = 2", updates={"exact": "7.25"})
        until(made, lambda: len(rows_of(made, "Wide", ["id"])) == 2)
        until(made, lambda: (2, Decimal("7.25")) in rows_of(made, "Wide", ["id", "exact"]))
        assert reasons(made) == []
        found = rows_of(made, "Wide", ["id", "place", "day", "part", "exact", "tags", "at"])
        assert found == [
            (2, "x", date(1969, 12, 31), -2, Decimal("7.25"), [], START),
            (3, "x", date(2026, 1, 1), 3, Decimal("2.00"), ["b", "c"], START),
        ]


@pytest.mark.parametrize("backwards", [0, 1000])
def test_commits_keep_their_order_whatever_their_clocks(lake: Lake, tmp_path: Path, backwards: int) -> None:
    lake.add(range(3), configuration=FEED)
    with reading(lake, tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        stopped(tmp_path)
        for step in range(6):
            lake.opened.delete("id = 1")
            lake.add([1], f"n{step}")
            lake.opened.update(predicate="id = 2", updates={"note": f"'n{step}'"})
        for log in sorted(Path(lake.path, "_delta_log").glob("*.json")):
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            for each in lines:
                if "commitInfo" in each:
                    each["commitInfo"]["timestamp"] = int((START.timestamp() + 86_400) * 1000) - backwards * int(
                        log.stem
                    )
            log.write_text("\n".join(map(json.dumps, lines)))
        until(made, lambda: taken(made) == lake.rows())
        assert reasons(made) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"delta.enableDeletionVectors": "true"}, "deletionVectors"),
        ({"delta.columnMapping.mode": "name"}, "delta.columnMapping.mode"),
    ],
)
def test_tables_of_other_readers_are_refused(lake: Lake, tmp_path: Path, settings: dict[str, str], words: str) -> None:
    lake.add(range(3), configuration=FEED)
    log = Path(lake.path, "_delta_log", f"{0:020}.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for each in lines:
        if "metaData" in each:
            each["metaData"]["configuration"] |= settings
            schema = json.loads(each["metaData"]["schemaString"])
            for number, column in enumerate(schema["fields"]):
                column["metadata"] = {
                    "delta.columnMapping.id": number + 1,
                    "delta.columnMapping.physicalName": column["name"],
                }
            each["metaData"]["schemaString"] = json.dumps(schema)
        if "protocol" in each:
            features = ["deletionVectors"] if "Vectors" in words or "deletion" in words else ["columnMapping"]
            each["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": [*features, "changeDataFeed"],
            }
    log.write_text("\n".join(map(json.dumps, lines)))
    with deployed(tmp_path) as made, pytest.raises(UmbelError, match=words):
        made.commit([keyed(lake)])


def test_a_table_that_is_not_there_is_refused(lake: Lake, tmp_path: Path) -> None:
    with deployed(tmp_path) as made, pytest.raises(InvalidValue, match="there is no Delta table"):
        made.commit([keyed(lake)])
    lake.add([1], configuration=FEED)
    renamed = cast("Any", keyed(lake))
    other = pa.table({"id": [1], "updated_at": [START]})
    write_deltalake(lake.path, other, mode="overwrite", schema_mode="overwrite")
    with deployed(tmp_path / "b") as made, pytest.raises(InvalidValue, match="no column 'note'"):
        made.commit([renamed])


def test_a_path_with_wildcards_is_refused(lake: Lake) -> None:
    with pytest.raises(InvalidValue, match="without wildcards"):
        lake.table("orders/*")
    with pytest.raises(InvalidValue, match="native"):
        orders(lake, cdc="upsert")


def test_reading_resumes_within_a_file(lake: Lake) -> None:
    lake.add(range(200_000))
    place = local_place("lake", lake.path)
    (file,) = place.snapshot(0)
    types = {"id": "long", "note": "string"}
    frames = list(place.rows(file, types))
    assert len(frames) > 2
    assert sum(each.height for each in frames) == 200_000
    assert next(place.rows(DataFile(file.path, file.partition), types)).equals(frames[0])


def test_days_and_instants_that_python_does_not_have(lake: Lake, tmp_path: Path) -> None:
    """The statistics of the log have them too."""
    far = {
        "day": pa.array([0, 2_932_897], pa.int32()).cast(pa.date32()),
        "at": pa.array([0, 253_402_300_800_000_000], pa.timestamp("us", "UTC")),
    }
    rows = pa.table({"id": pa.array([1, 2]), "updated_at": pa.array([START] * 2, pa.timestamp("us", "UTC")), **far})
    write_deltalake(lake.path, rows, configuration=FEED)

    @source(lake.table("orders"), disorder="30d", cdc="native", every="1s")
    @dataset
    class Days:
        id: int = field(key=True)
        day: date
        at: datetime
        updated_at: datetime = field(timestamp=True)

    with reading(lake, tmp_path, Days) as made:
        until(made, lambda: made.taken().get("Days") == 2)
        assert made.changes("Days")["id"].to_list() == [1]
        assert {each.field for each in letters(made)} == {"day", "at"}


def test_columns_may_have_names_that_umbel_uses(lake: Lake, tmp_path: Path) -> None:
    more = {f"_{each}": ["d", "d", "x"] for each in ("op", "committed", "start", "row", "identity", "kind", "again")}
    made = table([1, 2, 3], "a").to_pydict()
    write_deltalake(lake.path, pa.table({**made, **more}), configuration=FEED)
    with reading(lake, tmp_path, orders(lake, cdc="native", preproc={"note": ref("_op")})) as read:
        until(read, lambda: [note for _, note, _ in taken(read)] == ["d", "d", "x"])
        lake.opened.update(updates={"_op": "'changed'"}, predicate="id = 1")
        lake.opened.delete("id = 2")
        until(read, lambda: [note for _, note, _ in taken(read)] == ["changed", "x"])
        assert letters(read) == []
