"""Rows without keys that their source takes back: all is as if they had never been there."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.laws.sources import BEGIN, USERS, delays, fractions, instants, letters, numbers, small, users
from tests.laws.sources import EVENTS as ROWS
from tests.laws.test_programs import again_and_again, check_everywhere
from tests.laws.twins import Program, Source, Step, Twin
from tests.profiles import examples
from tests.reference import SECOND, Change
from tests.reference_operators import Flow, net
from umbel.aggregates import Count, Distinct, FirstK, LastK, Max, Stddev, Sum
from umbel.expr import col
from umbel.types.windows import Continuous, Hopping, Session, Tumbling


@dataclass(frozen=True)
class SourceThatTakesBack(Source):
    """A source without keys: a weight of −1 takes a row of these values back, at an instant of its own, after it came."""

    @property
    def is_ordered(self) -> bool:
        return True

    def flow(self) -> Flow:
        return Flow(net(replace(row, at=row.time, seq=0) for row in self.rows))


@st.composite
def taken_back(draw: Any) -> tuple[Change, ...]:
    """Draw rows, and behind them deletions of some of them: of each as many as there are."""
    fields = {"k": small, "g": letters, "x": numbers, "f": fractions, "l": st.lists(small, max_size=2)}
    values = st.fixed_dictionaries(fields)
    rows = draw(st.lists(st.builds(lambda at, row: Change(at, at, row), instants, values), max_size=8))
    rows += draw(st.lists(st.sampled_from(rows), max_size=2)) if rows else []
    for each in [each for each in rows if draw(st.booleans())]:
        place = draw(st.integers(rows.index(each) + 1, len(rows)))
        rows.insert(place, replace(each, at=each.at + draw(delays), weight=-1))
    return tuple(rows)


def retaining(window: Any) -> list[Any]:
    """Return aggregates whose states have rows or values of these."""
    found = [
        LastK(of="x", limit=3, dedup=False, window=window),
        FirstK(of="g", limit=2, dedup=True, dropnull=False, window=window),
        Distinct(of="g", unordered=True, window=window),
        Count(of="x", unique=True, approx=True, window=window),
        Max(of="x", window=window),
        Stddev(of="x", window=window),
        Sum(of="f", window=window),
    ]
    return [each.named(f"a{number}") for number, each in enumerate(found)]


def readers(stream: Twin) -> dict[str, Twin]:
    """Return pipelines of each operator with state."""
    users_of = Twin.of("U", USERS, appends=False)
    some = stream.filter(Step("k != 1", col("k") != 1, lambda row: row["k"] != 1))
    return {
        "D0": stream.aggregate(["k"], retaining(Continuous("30s"))),
        "D1": stream.aggregate(["k"], retaining(Hopping("50s", "20s"))),
        "D2": some.aggregate(["g"], retaining(Continuous("forever"))),
        "D3": stream.aggregate(["k"], retaining(None), window=Session("15s")),
        "D4": stream.latest("k"),
        "D5": some.union(stream).first("g"),
        "D6": stream.dedup(["k"], Tumbling("30s")),
        "D7": stream.join(users_of, ["k"], ["c"], how="left").aggregate(["k"], retaining(Hopping("forever", "30s"))),
    }


def program(rows: tuple[Change, ...], joined: tuple[Change, ...], name: str, disorder: int = 1000) -> Program:
    """Return one of the pipelines over rows."""
    sources = {"E": SourceThatTakesBack(ROWS, rows, deletes=True), "U": Source(USERS, joined)}
    made = readers(Twin.of("E", ROWS, appends=False))[name]
    read = {each: source for each, source in sources.items() if each == "E" or name == "D7"}
    return Program.numbered(read, {name: made}, disorder)


@given(rows=taken_back(), joined=users, name=st.sampled_from([f"D{n}" for n in range(8)]), seed=st.integers(0, 2**32))
@examples(40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much])
def test_all_is_as_if_they_had_never_been(
    rows: tuple[Change, ...], joined: tuple[Change, ...], name: str, seed: int
) -> None:
    check_everywhere(program(rows, joined, name), random.Random(seed), [BEGIN + 70 * SECOND])


def test_each_reader_forgets_the_row() -> None:
    """A row taken back by a later message, with a number and an instant of its own, stayed the last one, or the latest."""
    values = [{"k": 1, "g": "a", "x": x, "f": 0.5, "l": []} for x in (5, 7)]
    rows = tuple(Change(at, at, row) for at, row in zip((BEGIN, BEGIN + 10 * SECOND), values, strict=True))
    later = BEGIN + 200 * SECOND, {"k": 0, "g": "b", "x": 1, "f": 0.5, "l": []}
    gone = replace(rows[1], at=BEGIN + 90 * SECOND, weight=-1)
    for name in readers(Twin.of("E", ROWS, appends=False)):
        again_and_again(program((*rows, gone, Change(later[0], *later)), (), name), times=3)
