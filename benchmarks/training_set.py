"""A training set: fifty windowed features as of the time of each row, beside DuckDB's range joins over the same events.

    python -m benchmarks.training_set [ROWS [EVENTS]]

Ten datasets of EVENTS events; ROWS rows, each a user and an instant. The values of both are compared. umbel answers in process;
the time of both includes the frame that comes in and the one that goes out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.figure import Figure, readable
from benchmarks.training_set_features import COLUMNS, DATASETS, EVENTS, WINDOWS, Training

ROWS, LARGE, MANY = 17_000, 130_000, 200_000
"""Rows of a small and of a larger training set, and events of each dataset."""
USERS = 4_000
TRIALS = 3
BAR = 0.3
"""Of the rows per second of DuckDB's range joins."""
SEED = 3
FIRST = 1_700_000_000_000_000
SPAN = 90 * 86_400_000_000
"""Microseconds."""
SECONDS = "date_trunc('second', points.instant)"
RANGES = {
    "count_1h": f"count(*) filter (event.instant >= {SECONDS} - interval 1 hour)",
    "sum_1d": f"coalesce(sum(event.amount) filter (event.instant >= {SECONDS} - interval 1 day), 0)",
    "mean_7d": f"coalesce(avg(event.amount) filter (event.instant >= {SECONDS} - interval 7 days), -1)",
    "max_30d": f"coalesce(max(event.amount) filter (event.instant >= {SECONDS} - interval 30 days), -1)",
    "sum_forever": "coalesce(sum(event.amount), 0)",
}
"""What DuckDB computes of the events up to the instant of a row."""


def run() -> list[Figure]:
    """Measure umbel and DuckDB in turn, for a few rows of each user and for many."""
    return [*figures(ROWS, MANY), *figures(LARGE, MANY)]


def figures(rows: int, events: int) -> list[Figure]:
    """Measure on so many rows and events of each dataset."""
    random = np.random.default_rng(SEED)
    tables = [_events(random, events) for _ in range(DATASETS)]
    points = _rows(random, rows)
    ours, theirs = _umbel(tables, points), _duckdb(tables, points)
    took = [(_timed(theirs), _timed(ours)) for _ in range(TRIALS)]
    duckdb, umbel = (min(each) for each in zip(*took, strict=True))
    differing = _differing(theirs(), ours())
    note = f"{rows:,} rows × {len(COLUMNS) * DATASETS} features, {DATASETS} datasets of {events:,} events"
    return [
        Figure(f"{rows:,} rows: DuckDB's range joins", duckdb, "s", note=note),
        Figure(f"{rows:,} rows: umbel, in process", umbel, "s", note=note),
        Figure(f"{rows:,} rows: umbel / DuckDB's range joins", duckdb / umbel, "×", at_least=BAR),
        Figure(f"{rows:,} rows: values that differ", differing, "", at_most=0),
    ]


def _umbel(tables: list[pd.DataFrame], points: pd.DataFrame) -> Callable[[], pd.DataFrame]:
    from umbel.testing import MockClient

    client = MockClient()
    client.commit(message="training", datasets=[*EVENTS, *WINDOWS], featuresets=[Training])
    for number, table in enumerate(tables):
        client.log("training", f"events{number}", table)
    frame = points.rename(columns={"uid": "Training.uid"})
    outputs = [f"Training.{column}_{number}" for number in range(DATASETS) for column in COLUMNS]

    def answered() -> pd.DataFrame:
        found: Any = client.query_offline(
            inputs=[Training.uid], outputs=outputs, input_dataframe=frame, timestamp_column="at"
        )
        return found[outputs].rename(columns=lambda name: name.removeprefix("Training."))

    return answered


def _duckdb(tables: list[pd.DataFrame], points: pd.DataFrame) -> Callable[[], pd.DataFrame]:
    import duckdb

    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    for number, table in enumerate(tables):
        connection.register("incoming", table)
        connection.execute(
            f'create table events{number} as select uid, amount, "at"::timestamp as instant from incoming'
        )
    numbered = points.assign(row=np.arange(len(points)))

    def answered() -> pd.DataFrame:
        connection.register("numbered", numbered)
        connection.execute(
            'create or replace table points as select row, uid, "at"::timestamp as instant from numbered'
        )
        found = []
        for number in range(DATASETS):
            values = ", ".join(f"{value} as {name}_{number}" for name, value in RANGES.items())
            joined = (
                f"points left join events{number} event on event.uid = points.uid and event.instant <= points.instant"
            )
            found.append(connection.execute(f"select {values} from {joined} group by row order by row").df())
        return pd.concat(found, axis=1)

    return answered


def _differing(expected: pd.DataFrame, found: pd.DataFrame) -> int:
    """Return how many values differ: by more than rounding, where they are floats."""
    return sum(
        int((~np.isclose(expected[name].to_numpy(float), found[name].to_numpy(float), rtol=1e-9, atol=1e-9)).sum())
        for name in expected.columns
    )


def _timed(step: Callable[[], object]) -> float:
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def _events(random: np.random.Generator, rows: int) -> pd.DataFrame:
    at = pd.to_datetime(FIRST + random.integers(0, SPAN, rows), unit="us", utc=True)
    amounts = random.gamma(2, 30, rows).round(2)
    return pd.DataFrame({"uid": random.integers(0, USERS, rows), "amount": amounts, "at": at})


def _rows(random: np.random.Generator, rows: int) -> pd.DataFrame:
    at = pd.to_datetime(FIRST + SPAN // 2 + random.integers(0, SPAN // 2, rows), unit="us", utc=True)
    return pd.DataFrame({"uid": random.integers(0, USERS, rows), "at": at})


def main(rows: str = str(ROWS), events: str = str(MANY)) -> None:
    """Measure and print the figures."""
    for figure in figures(int(rows), int(events)):
        print(f"{figure.name:45} {readable(figure.value):>10} {figure.unit:3} {figure.verdict:15} {figure.note}")


if __name__ == "__main__":
    main(*sys.argv[1:])
