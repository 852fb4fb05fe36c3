"""The pipelines of the benchmark written by hand in plain Python: orjson, dicts, bisect, one process, nothing kept on disk.

    python -m benchmarks.pipelines_by_hand PIPELINE FOLDER VALUES

Each reads the files in order of arrival, is up to date after every row, takes late rows into account, and ends with the values
as of `NOW`: a frame for each dataset, written to the folder VALUES.
"""

from __future__ import annotations

import json
import sys
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from benchmarks.pipelines_data import DAY, HOUR, MINUTE, NOW, SECOND
from benchmarks.pipelines_many import MANY, STEP

TILE = DAY // 100
GAP = 30 * MINUTE // SECOND
"""Seconds; umbel compares whole ones."""
Values = dict[str, list[dict[str, Any]]]


def rows_of(folder: Path, name: str) -> Iterator[Any]:
    """Yield the rows of all files of a source."""
    for path in sorted(folder.glob(f"{name}-*.ndjson")):
        with path.open("rb") as lines:
            yield from map(orjson.loads, lines)


def together(folder: Path, *names: str) -> Iterator[tuple[int, Any]]:
    """Yield the rows of several sources with the index of their source: the first file of each, the second of each, and so on."""
    for paths in zip(*(sorted(folder.glob(f"{name}-*.ndjson")) for name in names), strict=True):
        for number, path in enumerate(paths):
            with path.open("rb") as lines:
                for line in lines:
                    yield number, orjson.loads(line)


class Windows:
    """Count and sum of a day, of seven days and forever, by key: tiles of a hundredth of a day, and totals."""

    def __init__(self) -> None:
        self.tiles: defaultdict[tuple[Any, int], list[float]] = defaultdict(lambda: [0, 0.0])
        self.total: defaultdict[Any, int] = defaultdict(int)

    def add(self, key: Any, at: int, amount: float, weight: int) -> None:
        """Add a row, or take one back."""
        tile = self.tiles[key, at // TILE]
        tile[0] += weight
        tile[1] += weight * amount
        self.total[key] += weight

    def values(self, name: str) -> list[dict[str, Any]]:
        """Return the values of all keys as of `NOW`."""
        day, week = defaultdict(lambda: [0.0, 0.0]), defaultdict(float)
        for (key, tile), (count, amount) in self.tiles.items():
            if tile * TILE >= NOW - 7 * DAY:
                week[key] += amount
                if tile * TILE >= NOW - DAY:
                    day[key][0] += count
                    day[key][1] += amount
        return [
            {
                name: key,
                "orders_1d": int(day[key][0]),
                "spent_1d": day[key][1],
                "mean_1d": day[key][1] / day[key][0] if day[key][0] else 0.0,
                "spent_7d": week[key],
                "orders": count,
            }
            for key, count in self.total.items()
        ]


def orders(folder: Path) -> Values:
    """Join, filter and aggregate; a late price corrects the orders since its time."""
    customers, categories = Windows(), Windows()
    since: defaultdict[int, list[int]] = defaultdict(list)
    known: defaultdict[int, list[tuple[float, str]]] = defaultdict(list)
    waiting: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    newest: dict[int, int] = {}

    def apply(order: tuple[int, int, int], price: tuple[float, str], weight: int) -> None:
        at, customer, quantity = order
        amount = price[0] * quantity
        customers.add(customer, at, amount, weight)
        categories.add(price[1], at, amount, weight)

    for source, row in together(folder, "prices", "orders"):
        product, at = row["product"], row["at"]
        if source == 0:
            begins, prices = since[product], known[product]
            place = bisect_left(begins, at)
            price = (row["price"], row["category"])
            if newest.get(product, -1) >= at:
                until = begins[place] if place < len(begins) else NOW
                for order in waiting[product]:
                    if at <= order[0] < until:
                        if place:
                            apply(order, prices[place - 1], -1)
                        apply(order, price, 1)
            begins.insert(place, at)
            prices.insert(place, price)
        elif row["quantity"] > 0:
            order = (at, row["customer"], row["quantity"])
            waiting[product].append(order)
            newest[product] = max(newest.get(product, -1), at)
            place = bisect_right(since[product], at)
            if place:
                apply(order, known[product][place - 1], 1)
    return {"ByCustomer": customers.values("customer"), "ByCategory": categories.values("category")}


def stages(folder: Path) -> Values:
    """Add up by hour; give an hour to its region when it is over, and what is late at once."""
    hours: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    regions: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    running: defaultdict[int, dict[int, str]] = defaultdict(dict)
    now = 0

    def close(until: int) -> None:
        for hour in sorted(each for each in running if each < until):
            for user, region in running.pop(hour).items():
                payments, total = hours[user, hour]
                counted = regions[region]
                counted[0] += payments
                counted[1] += total
                counted[2] = max(counted[2], total)

    for row in rows_of(folder, "events"):
        user, hour, amount = row["user"], row["at"] // HOUR, row["amount"]
        if hour > now:
            close(hour)
            now = hour
        mine = hours[user, hour]
        mine[0] += 1
        mine[1] += amount
        if hour == now:
            running[hour][user] = row["region"]
        else:
            counted = regions[row["region"]]
            counted[0] += 1
            counted[1] += amount
            counted[2] = max(counted[2], mine[1])
    names = ("payments", "total", "largest")
    return {"Region": [{"region": key, **dict(zip(names, counted, strict=True))} for key, counted in regions.items()]}


def tables(folder: Path) -> Values:
    """Join the newest row of each account with the newest row of its owner."""
    accounts: dict[int, tuple[int, int, int]] = {}
    owners: dict[int, tuple[int, str | None, int | None]] = {}
    owned: defaultdict[int, set[int]] = defaultdict(set)
    joined: dict[int, tuple[int, int, str | None, int | None]] = {}
    nobody = (0, None, None)
    for source, row in together(folder, "accounts", "owners"):
        at, owner = row["at"], row["owner"]
        if source == 0:
            account = row["account"]
            before = accounts.get(account)
            if before is None or at >= before[0]:
                if before is not None and before[1] != owner:
                    owned[before[1]].discard(account)
                accounts[account] = (at, owner, row["balance"])
                owned[owner].add(account)
                joined[account] = (owner, row["balance"], *owners.get(owner, nobody)[1:])
        elif owner not in owners or at >= owners[owner][0]:
            found = owners[owner] = (at, row["tier"], row["limit"])
            for account in owned[owner]:
                joined[account] = (owner, accounts[account][2], *found[1:])
    names = ("owner", "balance", "tier", "limit")
    return {"Owned": [{"account": key, **dict(zip(names, found, strict=True))} for key, found in joined.items()]}


def sessions(folder: Path) -> Values:
    """Drop clicks seen before; a click begins, extends or connects sessions of its user."""
    seen: set[tuple[int, int]] = set()
    visits: defaultdict[int, list[list[int]]] = defaultdict(list)
    for row in rows_of(folder, "clicks"):
        at, dwell = row["at"], row["dwell"]
        identity = (row["click"], at // DAY)
        if identity in seen:
            continue
        seen.add(identity)
        mine = visits[row["user"]]
        place = bisect_right(mine, at, key=lambda visit: visit[0])
        before = mine[place - 1] if place and at // SECOND - mine[place - 1][1] // SECOND <= GAP else None
        after = mine[place] if place < len(mine) and mine[place][0] // SECOND - at // SECOND <= GAP else None
        if before is not None:
            before[1] = max(before[1], at)
            before[2] += 1
            before[3] += dwell
            if after is not None:
                before[1] = max(before[1], after[1])
                before[2] += after[2]
                before[3] += after[3]
                del mine[place]
        elif after is not None:
            after[0] = at
            after[2] += 1
            after[3] += dwell
        else:
            mine.insert(place, [at, at, 1, dwell])
    names = ("begin", "last", "clicks", "dwell")
    found = ({"user": user, **dict(zip(names, visit, strict=True))} for user, own in visits.items() for visit in own)
    return {"Visit": list(found)}


def many(folder: Path) -> Values:
    """Count and sum the payments above each of ten bounds, over a day."""
    tiles: list[defaultdict[tuple[Any, int], list[int]]] = [defaultdict(lambda: [0, 0]) for _ in range(MANY)]
    for row in rows_of(folder, "events"):
        amount, tile = row["amount"], row["at"] // TILE
        keys = (row["region"], tile), (row["user"], tile)
        for number in range(MANY):
            if amount < number * STEP:
                break
            counted = tiles[number][keys[number % 2]]
            counted[0] += 1
            counted[1] += amount
    return {f"Above{number}": _over_a_day(each, ("region", "user")[number % 2]) for number, each in enumerate(tiles)}


def _over_a_day(tiles: Mapping[tuple[Any, int], list[int]], name: str) -> list[dict[str, Any]]:
    found: dict[Any, list[int]] = {}
    for (key, tile), (count, amount) in tiles.items():
        mine = found.setdefault(key, [0, 0])
        if tile * TILE >= NOW - DAY:
            mine[0] += count
            mine[1] += amount
    return [{name: key, "payments": count, "total": amount} for key, (count, amount) in found.items()]


LOOPS: Mapping[str, Callable[[Path], Values]] = {
    "orders": orders,
    "stages": stages,
    "tables": tables,
    "sessions": sessions,
    "many": many,
}


def main(pipeline: str, folder: str, values: str) -> None:
    """Run a loop in this process, write its values and print what it took."""
    begun = time.monotonic()
    found = LOOPS[pipeline](Path(folder))
    seconds = time.monotonic() - begun
    for dataset, rows in found.items():
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(Path(values) / f"{dataset}.parquet")
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
