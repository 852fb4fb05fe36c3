"""The flights as files: nothing is lost or changed on the way from the package."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from examples.flights.data import FLIGHTS, Tables, load, requests, write


@pytest.fixture(scope="module")
def tables() -> Tables:
    return load()


def test_all_rows_are_there(tables: Tables) -> None:
    assert tables.flights.height == 336_776
    assert tables.planes.height == 3_322
    assert tables.weather.height == 26_115
    assert tables.airports.height == 1_458
    assert tables.airlines.height == 16


def test_what_is_not_known_is_null_and_whole_numbers_stay_whole(tables: Tables) -> None:
    flights = tables.flights
    assert flights["dep_delay"].dtype == pl.Int64
    assert flights["dep_time"].null_count() == flights["dep_delay"].null_count() == 8_255
    assert tables.planes["year"].dtype == pl.Int64
    assert tables.planes["year"].null_count() == 70
    assert not any("NA" in frame[name] for frame in (flights, tables.planes) for name in ("tailnum",))


def test_every_flight_has_the_time_zone_of_its_origin(tables: Tables) -> None:
    assert tables.flights["time_zone"].unique().to_list() == ["America/New_York"]


def test_the_files_of_a_month_hold_the_rows_of_that_month(tables: Tables, tmp_path: Path) -> None:
    write(tables, tmp_path, months=(2, 11))
    assert sorted(path.name for path in (tmp_path / "flights").iterdir()) == ["2013-02.ndjson", "2013-11.ndjson"]
    schema = {**FLIGHTS, "time_zone": pl.String}
    for month in (2, 11):
        expected = tables.flights.filter(pl.col("month") == month)
        assert pl.read_ndjson(tmp_path / "flights" / f"2013-{month:02}.ndjson", schema=schema).equals(expected)
        weather = pl.read_csv(tmp_path / "weather" / f"2013-{month:02}.csv", schema=tables.weather.schema)
        assert weather.equals(tables.weather.filter(pl.col("month") == month))
    assert pl.read_parquet(tmp_path / "planes.parquet").equals(tables.planes)
    assert pl.read_csv(tmp_path / "airlines.csv").equals(tables.airlines)


def test_requests_are_the_rows_in_order(tables: Tables) -> None:
    rows = tables.flights.head(25)
    parts = list(requests(rows, 10))
    assert [len(part) for part in parts] == [10, 10, 5]
    assert [row for part in parts for row in part] == rows.to_dicts()
