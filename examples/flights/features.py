"""Flights as features: what is declared here is all that umbel knows.

    umbel run examples.flights.features

`FLIGHTS_DATA` is the folder of the files (`python -m examples.flights.data FOLDER` writes them).
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import List, Optional  # noqa: UP035

import pandas as pd

from umbel import F
from umbel.connectors import CSV, Files, Webhook, source
from umbel.datasets import Average, Count, LastK, Max, Min, Stddev, Sum, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.expr import col
from umbel.featuresets import extractor, featureset
from umbel.lib import inputs, outputs

__owner__ = "flights@example.com"

files = Files(name="flights", folder=os.environ.get("FLIGHTS_DATA", "examples/flights/.data"))
webhook = Webhook(name="airports")
WINDOWS = ("6h", "1d", "7d", "forever")


@source(files.path("flights/*.ndjson", format="json"), disorder="2d", cdc="append", every="1s")
@source(webhook.endpoint("flights"), disorder="2d", cdc="append")
@dataset
class Flight:
    """A flight as it was scheduled and as it left."""

    year: int
    month: int
    day: int
    sched_dep_time: int
    dep_time: Optional[int]
    dep_delay: Optional[int]
    carrier: str
    flight: int
    tailnum: Optional[str]
    origin: str
    dest: str
    time_zone: str
    # the hour it was scheduled for
    time_hour: datetime = field(timestamp=True)


@source(files.path("planes.parquet", format="parquet"), disorder="1d", cdc="upsert", every="1s")
@dataset(index=True)
class Plane:
    """A plane by its tail number."""

    tailnum: str = field(key=True)
    year: Optional[int]
    manufacturer: str
    model: str
    seats: int
    added_at: datetime


@source(files.path("weather/*.csv", format=CSV()), disorder="14d", cdc="upsert", every="1s")
@source(webhook.endpoint("weather"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Weather:
    """The latest weather observed at an airport."""

    origin: str = field(key=True)
    temp: Optional[float]
    wind_speed: Optional[float]
    visib: float
    time_hour: datetime


@source(files.path("airlines.csv", format=CSV()), disorder="1d", cdc="upsert", every="1s")
@dataset(index=True)
class Airline:
    """An airline by its code."""

    carrier: str = field(key=True)
    name: str
    added_at: datetime


def departed(df: pd.DataFrame) -> pd.DataFrame:
    """Move each flight to the UTC instant it left: scheduled local time in the origin's time zone, plus the delay."""
    parts = {"year": df["year"], "month": df["month"], "day": df["day"]}
    minutes = df["sched_dep_time"] // 100 * 60 + df["sched_dep_time"] % 100
    local = pd.to_datetime(parts) + pd.to_timedelta(minutes.astype("int64"), unit="min")
    moments = [local[own.index].dt.tz_localize(zone).dt.tz_convert("UTC") for zone, own in df.groupby("time_zone")]
    scheduled = pd.concat(moments).reindex(df.index)
    left = scheduled + pd.to_timedelta(df["delay"].astype("int64"), unit="min")
    return df[["carrier", "flight", "tailnum", "origin", "dest", "delay"]].assign(time_hour=left)


@dataset
class Departure:
    """A flight that left."""

    carrier: str
    flight: int
    tailnum: str
    origin: str
    dest: str
    delay: int
    at: datetime

    @pipeline
    @inputs(Flight)
    def left(cls, flights):  # type: ignore[no-untyped-def]
        carried = {"carrier": str, "flight": int, "tailnum": str, "origin": str, "dest": str, "delay": int}
        return (
            flights.filter(~col("dep_time").isnull())
            .assign(delay=col("dep_delay").fillnull(0).astype(int))
            .dropnull("tailnum")
            .transform(departed, schema={**carried, "time_hour": datetime})
            .rename({"time_hour": "at"})
        )


@dataset
class DepartureInContext:
    """A departure with its plane, and with the weather at its origin, if that was observed within the hour before."""

    carrier: str
    flight: int
    tailnum: str
    origin: str
    dest: str
    delay: int
    plane_year: Optional[int]
    seats: Optional[int]
    temp: Optional[float]
    wind_speed: Optional[float]
    observed_at: Optional[datetime]
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Departure, Plane, Weather)
    def joined(cls, departures, planes, weather):  # type: ignore[no-untyped-def]
        return (
            departures.join(planes, how="left", on=["tailnum"], fields=["year", "seats"])
            .rename({"year": "plane_year"})
            .join(
                weather,
                how="left",
                on=["origin"],
                within=("1h", "0s"),
                fields=["temp", "wind_speed", "time_hour"],
            )
            .rename({"time_hour": "observed_at"})
        )


@dataset(index=True)
class LastDeparture:
    """The last departure of each plane, in context."""

    tailnum: str = field(key=True)
    carrier: str
    flight: int
    origin: str
    dest: str
    delay: int
    plane_year: Optional[int]
    seats: Optional[int]
    temp: Optional[float]
    wind_speed: Optional[float]
    observed_at: Optional[datetime]
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(DepartureInContext)
    def last(cls, departures):  # type: ignore[no-untyped-def]
        return departures.groupby("tailnum").latest()


def of_delay(windows):  # type: ignore[no-untyped-def]
    """Return the aggregates of the departure delay, in minutes, over some windows."""
    kinds = {
        "count": lambda window: Count(window=window),
        "sum": lambda window: Sum(of="delay", window=window),
        "average": lambda window: Average(of="delay", window=window),
        "minimum": lambda window: Min(of="delay", window=window),
        "maximum": lambda window: Max(of="delay", window=window),
        "stddev": lambda window: Stddev(of="delay", window=window),
    }
    return {f"{kind}_{each}": make(Continuous(each)) for each in windows for kind, make in kinds.items()}


@dataset(index=True)
class OriginDelays:
    """Departure delays by airport."""

    origin: str = field(key=True)
    count_6h: int
    sum_6h: int
    average_6h: float
    minimum_6h: Optional[int]
    maximum_6h: Optional[int]
    stddev_6h: float
    count_1d: int
    sum_1d: int
    average_1d: float
    minimum_1d: Optional[int]
    maximum_1d: Optional[int]
    stddev_1d: float
    count_7d: int
    sum_7d: int
    average_7d: float
    minimum_7d: Optional[int]
    maximum_7d: Optional[int]
    stddev_7d: float
    count_forever: int
    sum_forever: int
    average_forever: float
    minimum_forever: Optional[int]
    maximum_forever: Optional[int]
    stddev_forever: float
    at: datetime

    @pipeline
    @inputs(Departure)
    def by_origin(cls, departures):  # type: ignore[no-untyped-def]
        return departures.groupby("origin").aggregate(**of_delay(WINDOWS))


@dataset(index=True)
class CarrierDelays:
    """Departure delays by airline."""

    carrier: str = field(key=True)
    count_6h: int
    sum_6h: int
    average_6h: float
    minimum_6h: Optional[int]
    maximum_6h: Optional[int]
    stddev_6h: float
    count_1d: int
    sum_1d: int
    average_1d: float
    minimum_1d: Optional[int]
    maximum_1d: Optional[int]
    stddev_1d: float
    count_7d: int
    sum_7d: int
    average_7d: float
    minimum_7d: Optional[int]
    maximum_7d: Optional[int]
    stddev_7d: float
    count_forever: int
    sum_forever: int
    average_forever: float
    minimum_forever: Optional[int]
    maximum_forever: Optional[int]
    stddev_forever: float
    at: datetime

    @pipeline
    @inputs(Departure)
    def by_carrier(cls, departures):  # type: ignore[no-untyped-def]
        return departures.groupby("carrier").aggregate(**of_delay(WINDOWS))


@dataset(index=True)
class Destinations:
    """Where a plane flew."""

    tailnum: str = field(key=True)
    destinations: List[str]  # noqa: UP006
    at: datetime

    @pipeline
    @inputs(Departure)
    def by_plane(cls, departures):  # type: ignore[no-untyped-def]
        return departures.groupby("tailnum").aggregate(
            destinations=LastK(of="dest", limit=5, dedup=False, window=Continuous("forever"))
        )


@featureset
class FlightFeatures:
    """What a model of delays would ask about a flight that is about to leave."""

    origin: str
    carrier: str
    tailnum: str
    airline: str = F(Airline.name, default="unknown")
    origin_count_6h: int = F(OriginDelays.count_6h, default=0)
    origin_average_6h: float = F(OriginDelays.average_6h, default=0.0)
    origin_average_1d: float = F(OriginDelays.average_1d, default=0.0)
    origin_stddev_1d: float = F(OriginDelays.stddev_1d, default=-1.0)
    carrier_count_1d: int = F(CarrierDelays.count_1d, default=0)
    carrier_average_1d: float = F(CarrierDelays.average_1d, default=0.0)
    carrier_average_7d: float = F(CarrierDelays.average_7d, default=0.0)
    carrier_maximum_7d: Optional[int] = F(CarrierDelays.maximum_7d)
    temp: Optional[float] = F(Weather.temp)
    wind_speed: Optional[float] = F(Weather.wind_speed)
    seats: Optional[int] = F(Plane.seats)
    destinations: List[str] = F(Destinations.destinations, default=[])  # noqa: UP006
    # how much worse the airport does today than the airline does in general, in minutes
    excess: float = F(col("origin_average_1d") - col("carrier_average_7d"))
    # whether the plane has been at one airport again and again
    shuttles: bool

    @extractor
    @inputs("destinations")
    @outputs("shuttles")
    def of_destinations(cls, ts: pd.Series, destinations: pd.Series) -> pd.Series:
        """Return whether the last destinations are mostly the same airports."""
        is_shuttle = [len(set(each)) * 2 <= len(each) for each in destinations]
        return pd.Series(is_shuttle, name="shuttles", dtype="boolean")
