"""Small files that follow each other are read together: rows, numbers, positions and dead letters are those of each alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.deployed import Deployed
from umbel.connectors import CSV, Files, source
from umbel.datasets import Count, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.runtime import intake
from umbel.runtime.batch import drain

__owner__ = "tests@umbel.dev"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
FILES, ROWS = 40, 5
Rows = Sequence[dict[str, Any]]


def rows_of(file: int) -> list[dict[str, Any]]:
    return [
        {
            "user": file * ROWS + row,
            "kind": f"k{row}",
            "amount": float(row),
            "note": None if row % 2 else "é",
            "at": (BEGIN + timedelta(minutes=file)).isoformat(),
        }
        for row in range(ROWS)
    ]


def json_file(rows: Rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def csv_file(rows: Rows) -> bytes:
    return pl.DataFrame(rows, orient="row", infer_schema_length=None).write_csv().encode()


def parquet_file(rows: Rows) -> bytes:
    from io import BytesIO

    pl.DataFrame(rows, infer_schema_length=None).write_parquet(into := BytesIO())
    return into.getvalue()


WRITERS: dict[str, Callable[[Rows], bytes]] = {"json": json_file, "csv": csv_file, "parquet": parquet_file}


def write(folder: Path, form: str) -> None:
    """Write small files of which some have rows, columns or bytes that others have not."""
    folder.mkdir()
    for file in range(FILES):
        rows: list[dict[str, Any]] = rows_of(file)
        if file % 7 == 3:
            rows[2]["amount"] = None  # refused
        if file % 11 == 5:
            rows = [{"extra": "x", **row} for row in rows]
        if file % 13 == 6:
            rows = [{**row, "user": str(row["user"])} for row in rows]
        data = WRITERS[form](rows)
        if file == 17:
            data = data[: len(data) // 2]
        if file in {20, 21, 30}:
            data = b""
        if file in {8, 9, 25} and form == "json":
            data = data.replace(b'"amount": 2.0', b'"amount" 2.0')  # no JSON
        (folder / f"f{file:03d}.{form}").write_bytes(data)


def datasets(folder: Path, form: str) -> list[Any]:
    @source(
        Files(name="f", folder=str(folder)).path("in/*", CSV() if form == "csv" else form), disorder="30d", cdc="append"
    )
    @dataset
    class Payment:
        user: int
        kind: str
        amount: float
        note: str | None
        at: datetime

    @dataset(index=True)
    class Total:
        kind: str = field(key=True)
        count: int
        total: float
        at: datetime

        @pipeline
        @inputs(Payment)
        def totals(cls, payments):  # type: ignore[no-untyped-def]
            return payments.groupby("kind").aggregate(
                count=Count(window=Continuous("forever")), total=Sum(of="amount", window=Continuous("forever"))
            )

    return [Payment, Total]


def outcome(folder: Path, form: str) -> tuple[list[Any], ...]:
    """Return what a deployment has after it has read the files in this process."""
    deployed = Deployed(folder / "d")
    deployed.commit(datasets(folder, form))
    drain(deployed.deployment)
    return stored(deployed)


def stored(deployed: Deployed) -> tuple[list[Any], ...]:
    """Return the rows with their numbers, the dead letters, the results and the counts of a deployment; close it."""
    place = deployed.deployment
    node = place.graph(place.catalog.revision()).outputs["Payment"]
    rows = place.changes.read(node).sort("_seq").rows()
    letters = [(each.position, each.field, each.reason, each.raw) for each in place.catalog.dead_letters(limit=1000)]
    totals = deployed.changes("Total").rows()
    counts = sorted(place.catalog.counts().items())
    deployed.close()
    return rows, sorted(letters), totals, counts


@pytest.mark.parametrize("form", WRITERS)
def test_rows_of_small_files_are_those_of_each_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    write(tmp_path / "in", form)
    groups = list[int]()
    known = intake.groups_of

    def noted(*args: Any) -> Any:
        found = known(*args)
        groups.append(len(found))
        return found

    monkeypatch.setattr("umbel.runtime.batch.groups_of", noted)
    together, at_once = outcome(tmp_path, form), max(groups)
    (tmp_path / "d").rename(tmp_path / "first")
    monkeypatch.setattr(intake, "SMALL_SPLIT", -1)
    alone = outcome(tmp_path, form)
    assert together == alone
    assert len(together[0]) >= (FILES - 8) * ROWS
    assert len(together[1]) >= 6
    assert at_once == 1
    assert max(groups) >= FILES - 3
