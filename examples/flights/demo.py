"""Flights become features: backfill, live replay, queries, and a comparison of what is served with a recomputation.

make demo            the whole of it
make demo-crash      the same, while processes of the worker are killed at random
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.flights.compare import Comparison, compare_destinations, compare_rows, compare_windows
from examples.flights.data import Tables, load, write
from examples.flights.killer import SECONDS, Killer
from examples.flights.recompute import departures, with_plane_and_weather
from examples.flights.replay import replay, requests
from examples.flights.server import INSTANT, Server

BACKFILLED = range(1, 12)
LIVE = 12
RATE = 1_500
"""Rows a second of the replay."""
PAIRS = 1_000
END = datetime(2014, 1, 2, tzinfo=UTC)
console = Console()


def main() -> int:
    """Run the demo; return 0 when everything served is right."""
    options = _options()
    tables = load()
    with tempfile.TemporaryDirectory(prefix="umbel-flights-") as name:
        folder = Path(name)
        write(tables, folder / "data", BACKFILLED)
        server = Server(folder, folder / "data", options.workers)
        try:
            outcome = _acts(server, tables, options.kills)
        finally:
            left = server.stop()
        if left:
            console.print(f"[red]left over after Ctrl-C: {left}")
        return 1 if outcome.differences or left else 0


def _acts(server: Server, tables: Tables, kills: int) -> Comparison:
    begun = time.monotonic()
    server.wait_until_ready(console.print)
    console.print(f"umbel answers after {time.monotonic() - begun:.1f} s")
    sent = sum(len(rows) for _, rows in requests(tables, LIVE))
    archived = tables.flights.filter(pl.col("month").is_in(list(BACKFILLED))).height
    with Killer(server, kills, lambda text: console.print(text, highlight=False)) as killer:
        _wait(server, "January to November from files", {"Flight": archived, "Plane": tables.planes.height})
        killer.live()
        rate = RATE if not kills else sent / (kills * SECONDS)
        with _bar("December, live", sent, "freshness") as show:
            replay(server, tables, LIVE, rate, lambda rows, fresh: show(rows, str(fresh)), threading.Event())
        killer.finish()
    _wait(server, "the rest", {"Flight": tables.flights.height, "Weather": tables.weather.height})
    _show_features(server)
    outcome = _compare(server, tables)
    verdict = "[green]all equal" if not outcome.differences else f"[red]{len(outcome.differences)} differ"
    console.print(
        f"{outcome.compared} served values compared with a recomputation by plain Polars "
        f"({outcome.rounded} of them rounded to a tile, within 1 % of their window): {verdict}"
    )
    for line in outcome.differences[:20]:
        console.print(f"  {line}", highlight=False)
    return outcome


def _compare(server: Server, tables: Tables) -> Comparison:
    events = departures(tables.flights)
    total = Comparison()
    instants = [END, *(datetime(2013, 12, day, 17, 30, tzinfo=UTC) for day in (3, 10, 17, 24, 31))]
    for dataset, key in (("OriginDelays", "origin"), ("CarrierDelays", "carrier")):
        keys = events.select(key).unique().sort(key)
        for instant in instants:
            served = server.lookup(dataset, keys, _at(instant, keys.height))
            total += compare_windows(served.drop("at").rename({"asked_at": "at"}), events, key)
    tails = events.select("tailnum").unique().sort("tailnum")
    served = server.lookup("Destinations", tails, _at(END, tails.height))
    total += compare_destinations(served.drop("at").rename({"asked_at": "at"}), events)
    total += _compare_joined(server, tables, events, tails)
    return total + _compare_training(server, events)


def _compare_joined(server: Server, tables: Tables, events: pl.DataFrame, tails: pl.DataFrame) -> Comparison:
    """Compare the last departure of every plane, with its plane and its weather."""
    served = server.lookup("LastDeparture", tails, _at(END, tails.height)).drop("asked_at")
    served = served.with_columns(pl.col("at", "observed_at").str.to_datetime(time_zone="UTC", time_unit="us"))
    last = events.sort("at", "position").unique("tailnum", keep="last")
    joined = with_plane_and_weather(last, tables.planes, tables.weather).select(
        "tailnum", "carrier", "flight", "origin", "dest", "delay", "at", "plane_year", seats="plane_seats",
        temp="weather_temp", wind_speed="weather_wind_speed", observed_at="weather_observed_at",
    )  # fmt: skip
    return compare_rows(served, joined, ["tailnum"], "last departure of")


def _compare_training(server: Server, events: pl.DataFrame) -> Comparison:
    """Ask for a training frame, point in time, and compare it with the recomputation."""
    pairs = events.sample(PAIRS, seed=7).select("origin", "carrier", "tailnum", "at")
    shift = pl.Series([timedelta(seconds=random.Random(7).uniform(0, 86400)) for _ in range(PAIRS)])
    pairs = pairs.with_columns((pl.col("at") + shift).alias("at"))
    data = {f"FlightFeatures.{name}": pairs[name].to_list() for name in ("origin", "carrier", "tailnum")}
    stamps = [each.isoformat() for each in pairs["at"]]
    body = {
        "inputs": list(data),
        "outputs": ["FlightFeatures"],
        "data": {**data, "timestamp": stamps},
        "timestamp_column": "timestamp",
    }
    frame = pl.DataFrame(server.ask("/api/v1/query_offline", body), infer_schema_length=None)
    console.print(f"point-in-time training frame for {PAIRS} random (flight, time) pairs:")
    short = frame.rename(lambda name: name.removeprefix("FlightFeatures."))
    _print(
        short.select("timestamp", "origin", "carrier", "origin_count_6h", "origin_average_1d", "temp", "shuttles").head(
            5
        )
    )
    total = Comparison()
    for dataset, key in (("OriginDelays", "origin"), ("CarrierDelays", "carrier")):
        served = server.lookup(dataset, pairs.select(key), pairs["at"])
        total += compare_windows(served.drop("at").rename({"asked_at": "at"}), events, key)
        columns = [name for name in short.columns if name.startswith(f"{key}_")]
        total += _same(short, served.rename(lambda name, own=key: f"{own}_{name}"), columns)
    served = short.select("tailnum", "destinations", pairs["at"])
    return total + compare_destinations(served, events)


def _same(training: pl.DataFrame, looked_up: pl.DataFrame, columns: list[str]) -> Comparison:
    """Compare features with the values looked up at the same points, null being the feature's default."""
    wrong = [
        f"{name}: query_offline {one!r}, lookup {two!r}"
        for name in columns
        for one, two in zip(training[name], looked_up[name], strict=True)
        if two is not None and one != two
    ]
    return Comparison(len(columns) * training.height, 0, tuple(wrong))


def _show_features(server: Server) -> None:
    data = {"FlightFeatures.origin": ["JFK", "EWR", "LGA"], "FlightFeatures.carrier": ["B6", "UA", "DL"]}
    data["FlightFeatures.tailnum"] = ["N593JB", "N14228", "N668DN"]
    body = {"inputs": list(data), "outputs": ["FlightFeatures"], "data": data, "as_of": END.isoformat()}
    begun = time.perf_counter()
    found = server.ask("/api/v1/query", body)
    console.print(
        f"features as of {END:%Y-%m-%d %H:%M} UTC, answered in {(time.perf_counter() - begun) * 1000:.1f} ms:"
    )
    table = Table("feature", *data["FlightFeatures.origin"], box=None)
    for name, values in found.items():
        table.add_row(name.removeprefix("FlightFeatures."), *(_short(value) for value in values))
    console.print(table)


def _wait(server: Server, what: str, expected: dict[str, int], within: float = 900) -> None:
    """Show progress until all rows are taken in, and queries are answered from them."""
    total, deadline = sum(expected.values()), time.monotonic() + within
    with _bar(what, total, "") as show:
        while True:
            taken = server.taken()
            done = sum(min(taken.get(name, 0), count) for name, count in expected.items())
            show(done, "")
            if all(taken.get(name, 0) >= count for name, count in expected.items()) and server.serves():
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"only {taken} of {expected} after {within:.0f} s; {server.end_of_log}")
            time.sleep(0.2)


@contextmanager
def _bar(what: str, total: int, extra: str):  # type: ignore[no-untyped-def]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} rows"),
    )
    rest = (TextColumn("{task.fields[rate]} rows/s"), TextColumn("{task.fields[extra]}"), TimeElapsedColumn())
    with Progress(*columns, *rest, console=console) as progress:
        task, begun = progress.add_task(what, total=total, rate="…", extra=""), time.monotonic()

        def show(done: int, value: str) -> None:
            rate = f"{done / max(time.monotonic() - begun, 1e-3):,.0f}"
            progress.update(task, completed=done, rate=rate, extra=f"{extra} {value}" if extra else "")

        yield show


def _at(instant: datetime, height: int) -> pl.Series:
    return pl.Series("at", [instant] * height, dtype=INSTANT)


def _print(frame: pl.DataFrame) -> None:
    table = Table(*frame.columns, box=None)
    for row in frame.iter_rows():
        table.add_row(*map(_short, row))
    console.print(table)


def _short(value: object) -> str:
    return "null" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0, help="how many processes of the worker to kill")
    parser.add_argument("--workers", type=int, default=2, help="how many Spark tasks run at once")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
