"""Hudi tables as sources: each commit once, by the data files that it replaces, and whatever is missing is reported."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.shop_datasets import deployed, letters, rows_of
from tests.deployed import Deployed
from tests.unit.connectors.hudi_lake import A, B, Lake, numbered
from tests.unit.connectors.lakes import keyed, keyless, until
from umbel.connectors import S3
from umbel.connectors.hudi_tables import HudiPlace
from umbel.connectors.polling import stop_polling
from umbel.definitions.arguments import ReadOptions
from umbel.errors import InvalidValue, NotSupported, PackageError

__owner__ = "shop@example.com"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def taken(made: Deployed) -> list[tuple[Any, ...]]:
    return rows_of(made, "Orders", ["id", "note", "updated_at"])


def test_a_keyed_dataset_is_what_the_table_is(lake: Lake, tmp_path: Path) -> None:
    lake.commit({A: numbered(range(100))})
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        lake.commit({A: {**numbered(range(90)), 3: "changed"}, B: numbered(range(200, 250))})
        lake.commit({B: numbered(range(210, 240), "again")})
        until(made, lambda: taken(made) == lake.rows())
        assert letters(made) == []
        lake.commit({A: {**lake.groups[A], 91: "back"}})
        until(made, lambda: taken(made) == lake.rows())
        assert made.taken()["Orders"] == 100 + (1 + 10 + 50) + (30 + 20) + 1


def test_a_keyless_dataset_takes_inserts_once(lake: Lake, tmp_path: Path) -> None:
    lake.commit({A: numbered(range(10))})
    with deployed(tmp_path, keyless(lake)) as made:
        until(made, lambda: made.taken().get("Copies") == 10)
        for last in range(11, 15):
            lake.commit({A: numbered(range(last))})
            stop_polling(tmp_path)
        until(made, lambda: made.taken()["Copies"] == 14)
        assert sorted(made.changes("Copies")["id"]) == list(range(14))
        assert letters(made) == []


def test_a_commit_between_two_requests(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.commit({A: numbered(range(10))})
    listed = HudiPlace.instants
    late = [numbered(range(210, 240), "again"), numbered(range(200, 250))]

    def instants(place: HudiPlace, table: Any) -> dict[str, Any]:
        if late:  # behind the view that the table was opened with
            lake.commit({B: late.pop()})
        return listed(place, table)

    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: len(taken(made)) == 10)
        monkeypatch.setattr(HudiPlace, "instants", instants)
        until(made, lambda: not late and taken(made) == lake.rows())
        assert letters(made) == []


def test_an_empty_table(lake: Lake, tmp_path: Path) -> None:
    lake.commit({})
    with deployed(tmp_path, keyed(lake)) as made:
        lake.commit({A: numbered(range(5))})
        until(made, lambda: taken(made) == lake.rows())


def removed(lake: Lake, instant: str) -> None:
    for each in (lake.path / ".hoodie").glob(f"{instant}*"):
        each.unlink()


@pytest.mark.parametrize("case", ["archived", "late", "cleaned", "former cleaned", "damaged", "dropped"])
def test_what_is_missing_is_reported(lake: Lake, tmp_path: Path, case: str) -> None:
    first = lake.commit({A: numbered(range(5))})
    with deployed(tmp_path, keyed(lake)) as made:
        until(made, lambda: taken(made) == lake.rows())
        stop_polling(tmp_path)
        if case == "late":
            lake.commit({B: numbered(range(10, 15))}, instant="20200101000000000")
            reason = "was completed after"
        elif case == "dropped":
            del lake.fields["note"]
            reason = "column 'note' was dropped, or renamed"
            lake.commit({A: numbered(range(6))})
        else:
            second = lake.commit({A: numbered(range(6))})
            name = f"{A}_0-1-2_{second}.parquet"
            if case == "archived":
                removed(lake, first)
                reason = "it was archived before later"
            elif "cleaned" in case:
                (lake.path / (name if case == "cleaned" else f"{A}_0-1-2_{first}.parquet")).unlink()
                reason = r"were deleted \(by cleaning\) before they were read"
            else:
                (lake.path / name).write_bytes(b"PAR1" + b"x" * 50)
                reason = "cannot be read"
        until(made, lambda: letters(made))
        assert re.search(reason, letters(made)[0].reason), letters(made)[0].reason
        assert len(taken(made)) == 5


def reading(folder: Path, cdc: str) -> ReadOptions:
    columns: Any = {"columns": ("id",), "keys": ("id",), "is_keyed": True}
    return ReadOptions(directory=folder, key="k", dataset="Orders", cdc=cdc, every=10**6, disorder=0, **columns)


def test_errors_at_commit_say_what_to_do(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.commit({A: numbered(range(5))})
    monkeypatch.setenv("UMBEL_BUCKETS", f"file://{tmp_path}")
    bucket = S3(name="lake").bucket("lake", prefix="orders", format="hudi")
    with pytest.raises(NotSupported, match="cdc 'upsert' of a Hudi table"):
        bucket.reader_of(reading(tmp_path, "upsert"))
    bucket.reader_of(reading(tmp_path, "native")).examine()
    del lake.fields["note"]
    lake.commit({A: numbered(range(5))})
    with pytest.raises(InvalidValue, match="no column 'note'"), deployed(tmp_path, keyed(lake)):
        pass
    (lake.path / ".hoodie" / "hoodie.properties").unlink()
    with pytest.raises(InvalidValue, match="there is no Hudi table"), deployed(tmp_path, keyed(lake)):
        pass
    monkeypatch.setitem(sys.modules, "hudi", None)
    with pytest.raises(PackageError, match=r"umbel\[hudi\]"), deployed(tmp_path, keyed(lake)):
        pass
