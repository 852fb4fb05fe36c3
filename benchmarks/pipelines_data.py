"""Rows for the pipelines benchmark: NDJSON files in order of arrival, the same at every run.

Each function makes the rows of one pipeline. Event time covers ten days and ends before `NOW`; rows arrive a little out of order,
some of them days late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.data import CACHE, made_once

PARTS = 16
"""Files of each source."""
SEED = 11
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
"""Milliseconds."""
GRID = 907_200_000
"""Milliseconds: a multiple of an hour and of the tiles of windows of a day and a week, so that lookups at `NOW` round nothing."""
NOW = 1_760_000_000_000 // GRID * GRID
"""When values are looked up, in milliseconds since the epoch."""
FIRST = NOW - 10 * DAY
LATE = 0.05
"""The share of the rows that arrive late."""
CATEGORIES = np.array([f"category-{number:02}" for number in range(50)])

Sources = Mapping[str, pl.DataFrame]


def orders(rows: int, random: np.random.Generator) -> Sources:
    """Return orders of products, and the prices of these, 5 % of them up to two days late."""
    prices, products = rows // 10, max(rows // 100, 10)
    product = np.concatenate([np.arange(products), random.integers(0, products, prices - products)])
    at = np.where(np.arange(prices) < products, FIRST, _instants(random, prices))
    table = {
        "product": product,
        "price": random.gamma(2, 30, prices).round(2),
        "category": CATEGORIES[product % len(CATEGORIES)],
        "supplier": random.integers(0, 1_000, prices),
        "at": at,
    }
    bought = {
        "order": np.arange(rows - prices),
        "customer": random.zipf(1.3, rows - prices) % 200_000,
        "product": random.integers(0, products, rows - prices),
        "quantity": random.integers(0, 5, rows - prices),
        "channel": np.array(["web", "app", "shop"])[random.integers(0, 3, rows - prices)],
        "at": _instants(random, rows - prices),
    }
    late = np.where(at > FIRST, _delays(random, prices, 2 * DAY), 0)
    return {"orders": _arrived(bought, _delays(random, rows - prices, 0)), "prices": _arrived(table, late)}


def events(rows: int, random: np.random.Generator) -> Sources:
    """Return payments of users in regions, 5 % of them up to two days late."""
    user = random.zipf(1.3, rows) % 50_000
    paid = {
        "user": user,
        "region": CATEGORIES[user % len(CATEGORIES)],
        "amount": random.integers(1, 10_000, rows),
        "at": _instants(random, rows),
    }
    return {"events": _arrived(paid, _delays(random, rows, 2 * DAY))}


def tables(rows: int, random: np.random.Generator) -> Sources:
    """Return updates of accounts and of their owners, 5 % of both up to two days late."""
    updates = rows // 5
    owners = max(rows // 20, 10)
    accounts = {
        "account": random.integers(0, 4 * owners, rows - updates),
        "balance": random.integers(0, 1_000_000, rows - updates),
        "at": _distinct(random, rows - updates),
    }
    accounts["owner"] = accounts["account"] % owners
    persons = {
        "owner": random.integers(0, owners, updates),
        "tier": np.array(["gold", "silver", "none"])[random.integers(0, 3, updates)],
        "limit": random.integers(0, 10_000, updates),
        "at": _distinct(random, updates),
    }
    return {
        "accounts": _arrived(accounts, _delays(random, rows - updates, 2 * DAY)),
        "owners": _arrived(persons, _delays(random, updates, 2 * DAY)),
    }


def clicks(rows: int, random: np.random.Generator) -> Sources:
    """Return clicks of users, one in ten of them sent twice, 5 % of them up to two days late."""
    once = rows * 10 // 11
    sent = np.concatenate([np.arange(once), random.choice(once, rows - once, replace=False)])
    user, at = random.zipf(1.3, once) % 50_000, _instants(random, once)
    page, dwell = random.integers(0, 500, once), random.integers(0, 60_000, once)
    made = {"click": sent, "user": user[sent], "page": page[sent], "dwell": dwell[sent], "at": at[sent]}
    again = np.where(np.arange(rows) < once, 0, random.integers(0, HOUR, rows))
    return {"clicks": _arrived(made, _delays(random, rows, 2 * DAY) + again)}


MAKERS: Mapping[str, Callable[[int, np.random.Generator], Sources]] = {
    "orders": orders,
    "stages": events,
    "tables": tables,
    "sessions": clicks,
    "many": events,
}


def files(pipeline: str, rows: int, cache: Path = CACHE) -> Path:
    """Return the folder of the files of a pipeline, made when it is not there yet."""
    return in_parts(cache / f"pipelines-{pipeline}-{rows}", PARTS, partial(MAKERS[pipeline], rows))


def in_parts(folder: Path, parts: int, make: Callable[[np.random.Generator], Sources]) -> Path:
    """Return a folder with so many NDJSON files of each source, made when it is not there yet."""

    def write(draft: Path) -> None:
        for name, frame in make(np.random.default_rng(SEED)).items():
            for number in range(parts):
                begin, end = (frame.height * bound // parts for bound in (number, number + 1))
                frame[begin:end].write_ndjson(draft / f"{name}-{number:03}.ndjson")

    return made_once(folder, write)


def _instants(random: np.random.Generator, rows: int) -> np.ndarray:
    return random.integers(FIRST, NOW - MINUTE, rows)


def _distinct(random: np.random.Generator, rows: int) -> np.ndarray:
    """Return instants of which no two are the same, so that the last one of a key is never in doubt."""
    step = (10 * DAY - MINUTE) // rows
    return random.permutation(rows) * step + random.integers(0, step, rows) + FIRST


def _delays(random: np.random.Generator, rows: int, longest: int) -> np.ndarray:
    """Return how much later than its time each row arrives: a minute at most, but for the late ones."""
    delays = random.integers(0, MINUTE, rows)
    return np.where(random.random(rows) < LATE, random.integers(0, longest, rows), delays) if longest else delays


def _arrived(columns: Mapping[str, np.ndarray], delays: np.ndarray) -> pl.DataFrame:
    """Return rows in order of arrival."""
    return pl.DataFrame(dict(columns))[np.argsort(columns["at"] + delays, kind="stable")]
