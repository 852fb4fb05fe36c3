"""Any pipelines over any changes: the same in one call, as a stream, from history, and by plain Python."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal as Fixed
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, note
from hypothesis import strategies as st

from tests.aggregating import instant
from tests.comparing import assert_rows, same
from tests.laws.engines import Live, Outcome, at_rest, comparable, in_one_call, streamed
from tests.laws.programs import programs
from tests.laws.sources import BEGIN, EVENTS, ITEMS, PLACES, PRICES, USERS
from tests.laws.twins import Program, Source, Step, Twin, World
from tests.laws.values import micros_of, stored
from tests.profiles import examples
from tests.reference import SECOND, Change, continuous, is_found, tiled
from tests.reference_operators import current, grouped
from umbel.aggregates import Average, Count, Distinct, FirstK, LastK, Max, Sum
from umbel.expr import col
from umbel.types.schema import Schema
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

Place = Callable[[int], int]
PARTS = 10
"""How many tests the law is cut into, so that several processes can share it; each draws examples of its own."""
OFTEN = 4
"""How many of them are not of `make nightly` alone."""


def changes(world: World, program: Program, dataset: str) -> Counter[tuple[Any, ...]]:
    """Return the changes of a dataset by the reference, as engines tell them."""
    schema = program.derived[dataset].dataset
    found: Counter[tuple[Any, ...]] = Counter()
    for each in world.flows[dataset].changes:
        values = {**each.values, schema.timestamp: each.time}
        found[(*(comparable(values[name]) for name in sorted(schema.names)), each.at)] += each.weight
    return Counter({row: count for row, count in found.items() if count})


def check(program: Program, outcome: Outcome, points: list[int]) -> None:
    """Assert that an engine says what the reference says."""
    world = program.world(outcome.watermarks)
    for twin in program.derived.values():  # what is queried at the end has seen something, too
        if twin.queried is not None:
            twin.queried(world)
    if any(outcome.stream_times.get(operator, newest) != newest for operator, newest in world.stream_times.items()):
        # what has been seen stays seen, even if the row was retracted
        assert all(outcome.stream_times[operator] >= newest for operator, newest in world.stream_times.items())
        world = program.world(outcome.watermarks, outcome.stream_times)
    for name, twin in program.derived.items():
        if twin.queried is not None:
            check_queried(program, outcome, name, twin.queried(world).changes, points)
            continue
        found, expected = outcome.changes(name), changes(world, program, name)
        assert found == expected, f"{name}\ntoo many: {found - expected}\nmissing: {expected - found}"
        if twin.keys:
            check_lookups(program, outcome, world, name, points)


def queried_frame(
    program: Program, name: str, keys: Sequence[str], queried: list[tuple[tuple[Any, ...], int]]
) -> tuple[pl.DataFrame, pl.Series]:
    """Return keys and instants as a lookup gets them; the order of its columns says nothing."""
    types = {key: program.derived[name].schema.dtypes[key] for key in keys}
    rows = [[stored(part, dtype) for part, dtype in zip(key, types.values(), strict=True)] for key, _ in queried]
    frame = pl.DataFrame(rows, schema={column: dtype.polars() for column, dtype in types.items()}, orient="row")
    return frame.select(sorted(keys)), pl.Series([instant(at) for _, at in queried], dtype=pl.Datetime("us", "UTC"))


def check_lookups(program: Program, outcome: Outcome, world: World, name: str, points: list[int]) -> None:
    """Assert that lookups find the row that is current."""
    flow, schema = world.flows[name], program.derived[name].dataset
    groups = grouped(flow.changes, flow.keys)
    edges = {change.at + apart for change in flow.changes for apart in (-1, 0)}
    requested = [(key, at) for key in groups for at in sorted({*points, *edges})]
    if not requested:
        return
    rows, found = outcome.lookup(name, *queried_frame(program, name, flow.keys, requested))
    for (key, at), row, is_there in zip(requested, rows.iter_rows(named=True), found, strict=True):
        expected = current(flow, key, at)
        assert is_there == (expected is not None), f"{name} {key} at {at}: found={is_there}"
        if expected is not None:
            values = {**expected.values, schema.timestamp: expected.time}
            assert {column: comparable(value) for column, value in row.items()} == {
                column: comparable(values[column]) for column in schema.names
            }, f"{name} {key} at {at}"


def check_queried(program: Program, outcome: Outcome, name: str, flow: list[Change], points: list[int]) -> None:
    """Assert that the aggregate at the end of a pipeline has the values of its windows at every instant of interest."""
    operator: Any = program.derived[name].node.operator
    groups = grouped(flow, operator.keys)
    lengths = [window.duration_us or 0 for window in operator.windows]
    edges = {change.at + length + apart for change in flow for length in lengths for apart in (-1, 0, SECOND)}
    requested = [(key, at) for key in groups for at in sorted({*points, *edges})]
    if not requested:
        return
    rows, found = outcome.lookup(name, *queried_frame(program, name, operator.keys, requested))
    for (key, at), row, is_there in zip(requested, rows.iter_rows(named=True), found, strict=True):
        mine = groups[key]
        assert is_there == is_found(mine, at), f"{name} {key} at {at}: found={is_there}"
        for window in operator.windows:
            over = [each for each in operator.aggregates if each.window == window]
            values = [micros_of(row[each.into_field]) for each in over]
            expected = [queried_values(over, mine, at, place, is_there) for place in places(operator, window, mine, at)]
            check_one_of(values, expected, f"{name} {key} at {at} over {window}")


def queried_values(aggregates: list[Any], changes: list[Change], at: int, place: Place, is_there: bool) -> list[Any]:
    """Return the values of aggregates over one window."""
    return [
        continuous(each, changes, at, each.window.duration_us, place) if is_there else each.missing
        for each in aggregates
    ]


def places(operator: Any, window: Any, changes: list[Change], at: int) -> list[Place]:
    """Return the ways a window can be cut: where tiles have instants.

    It is one way where rows are only ever inserted. Where they are retracted, a tile may have become one before.
    """
    if window.is_forever:
        return [int]
    grain = window.duration_us // 100
    if operator.parents[0].inserts_only:
        return [tiled(changes, grain, 8)]
    tile = (at // SECOND * SECOND - window.duration_us) // grain
    begin, end = tile * grain, (tile + 1) * grain
    return [int, *(lambda time, to=to: to if begin <= time < end else time for to in (begin - 1, end))]


def check_one_of(values: list[Any], expected: list[list[Any]], what: str) -> None:
    """Assert that all values together are one of some lists."""
    if not any(all(same(one, other, 1e3) for one, other in zip(values, each, strict=True)) for each in expected):
        assert_rows(values, expected[0], 1e3, what)


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.nightly if part >= OFTEN else ()) for part in range(PARTS)]
)
@given(program=programs(), seed=st.integers(0, 2**32), points=st.lists(st.integers(0, 400), max_size=3))
@examples(
    500 // PARTS, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
)
def test_any_pipelines_over_any_changes(part: int, program: Program, seed: int, points: list[int]) -> None:
    note(repr(program))
    check_everywhere(program, random.Random(seed), [BEGIN + program.shift + point * SECOND // 2 for point in points])


def check_everywhere(program: Program, chance: random.Random, points: list[int]) -> None:
    """Assert that a program does the same in one call, as a stream, and from history with or without a stream after it."""
    check(program, in_one_call(program), points)
    check(program, streamed(program, chance), points)
    check(program, at_rest(program, chance, live_after=chance.random() < 0.5), points)


# ---- what the law has found ------------------------------------------------------------------------------------------


def event(k: int, g: str, seconds: float, **values: Any) -> Change:
    at = BEGIN + round(seconds * SECOND)
    return Change(at, at, {"k": k, "g": g, "x": None, "f": None, "l": [], **values})


def again_and_again(program: Program, times: int = 12) -> None:
    for seed in range(times):
        check_everywhere(program, random.Random(seed), [])


def test_a_session_that_grows_leaves_no_result_behind() -> None:
    """A result of a cumulative window over a table came out although only corrections were in it."""
    events = (event(1, "a", 130), event(1, "a", 95.5), event(2, "a", 125.5))
    counted = Twin.of("E", EVENTS, appends=True).aggregate(["g", "k"], [Count(into_field="n")], window=Session("40s"))
    ever = [Sum(of="k", window=Hopping("forever", "30s"), into_field="s")]
    again_and_again(Program.numbered({"E": Source(EVENTS, events)}, {"D": counted.aggregate(["g"], ever)}, 1000))


def test_one_column_holds_two_keys() -> None:
    """A join whose left column stands for both right keys failed."""
    events = tuple(event(n, "a", 20 + n, x=n) for n in range(3))
    copied = Twin.of("E", EVENTS, appends=True).assign("m", int, Step("k + 0", col("k") + 0, lambda row: row["k"]))
    pairs = copied.rename({"x": "y"}).drop(["g", "f", "l"]).latest("k", "m")
    named = Twin.of("P", pairs.schema, appends=False)
    joined = Twin.of("E", EVENTS, appends=True).join(named, ["k", "k"], ["y"], how="inner")
    again_and_again(Program.numbered({"E": Source(EVENTS, events)}, {"P": pairs, "D": joined}, 1000))


def test_rows_of_one_row_are_distinguished_by_their_values() -> None:
    """Which of the elements of a list comes last must not depend on how a correction brings them."""
    events = (event(0, "a", 10, l=[1]), event(0, "a", 10, l=[2, 0]))
    last = Twin.of("E", EVENTS, appends=True).explode(["l"]).latest("k")
    again_and_again(Program.numbered({"E": Source(EVENTS, events)}, {"D": last}, 0))


def test_a_delete_of_nothing_cuts_no_lifetime() -> None:
    """A row that was deleted before it ever came made a table join tell the gap there in two parts."""
    at = BEGIN + 195 * SECOND
    events, deleted = (event(2, "a", 170),), (Change(at, at, {"no": 2, "of": "a", "p": 0, "q": None}, -1),)
    left = Twin.of("E", EVENTS, appends=True).latest("k", "g")
    joined = left.join(Twin.of("I", ITEMS, appends=False), ["k", "g"], ["q"], how="left")
    sources = {"E": Source(EVENTS, events), "I": Source(ITEMS, deleted, deletes=True)}
    again_and_again(Program.numbered(sources, {"D": joined}, 1000))


def test_of_equal_rows_one_is_first() -> None:
    """The reference took all of them."""
    stream = Twin.of("E", EVENTS, appends=True)
    again_and_again(
        Program.numbered({"E": Source(EVENTS, (event(1, "a", 10),))}, {"D": stream.union(stream).first("k")})
    )


def test_final_results_wait_for_a_watermark() -> None:
    """The first batch of a stream, which has none yet, emitted everything."""
    seconds = (0, 5, 40, 41)
    rows = tuple(Change(BEGIN + n * SECOND, BEGIN + n * SECOND, {"id": 0, "c": n, "u": None}) for n in seconds)
    counted = Twin.of("U", USERS, appends=False).aggregate(
        ["id"], [Count(window=Continuous("30s"), into_field="n")], emit="final"
    )
    again_and_again(Program.numbered({"U": Source(USERS, rows)}, {"D": counted}))


def test_final_results_come_out_though_their_rows_have_ended() -> None:
    """They came out when the next row that passed the filter was read, not when the watermark made them final."""
    events = (event(1, "a", 0), *(event(1, "b", n) for n in range(40, 200, 5)))
    first = Twin.of("E", EVENTS, appends=True).filter(Step("g == 'a'", col("g") == "a", lambda row: row["g"] == "a"))
    counted = first.aggregate(["k"], [Count(into_field="n")], window=Session("15s"), emit="final")
    live = Live(Program.numbered({"E": Source(EVENTS, events)}, {"D": counted}), 1)
    for row in live.program.sources["E"].rows:
        live.feed([("E", 0, [row])])
    assert sum(live.outcome().changes("D").values()) == 1


def test_a_row_that_is_superseded_does_not_count_along_another_column() -> None:
    """A table's Continuous windows along a column counted it until its end; the other windows did not."""
    values = {"s": (0, None), "c": Fixed("0.00"), "w": BEGIN, "y": None, "d": Fixed("1.25")}
    rows = tuple(Change(at, at, {**values, "c": Fixed(n)}) for n, at in enumerate((BEGIN, BEGIN + 200 * SECOND)))
    summed = Twin.of("C", PRICES, appends=False).aggregate(
        ["s"], [Sum(of="c", window=Continuous("30s"), into_field="n")], along="w"
    )
    again_and_again(Program.numbered({"C": Source(PRICES, rows, deletes=True)}, {"D": summed}))


def price(seconds: float, w: float, **values: Any) -> Change:
    at = BEGIN + round(seconds * SECOND)
    row = {"s": (0, None), "c": Fixed("0.00"), "y": None, "d": Fixed("1.25"), **values}
    return Change(at, at, {**row, "w": BEGIN + round(w * SECOND)})


@pytest.mark.parametrize("window", [Hopping("forever", "30s"), Hopping("70s", "30s"), Continuous("30s")], ids=str)
def test_a_row_that_is_superseded_has_no_result_along_another_column(window: Any) -> None:
    """The reference told of windows without beginning in which all rows were replaced; nothing changed there."""
    kinds: list[Any] = [
        Count(),
        Count(of="y", dropnull=True),
        Sum(of="c"),
        Average(of="c"),
        Max(of="y"),
        LastK(of="y", limit=3, dedup=False, dropnull=True),
        Distinct(of="c", unordered=True),
        Count(of="c", unique=True, approx=True),
    ]
    results = [replace(each, window=window, into_field=f"n{place}") for place, each in enumerate(kinds)]
    rows = (price(0, 40), price(100, 160, s=(1, "a")), price(100, 160), price(200, 400))
    grouped = Twin.of("C", PRICES, appends=False).aggregate(["s"], results, along="w")
    again_and_again(Program.numbered({"C": Source(PRICES, rows, deletes=True)}, {"D": grouped}))


def later(row: Change, seconds: float) -> Change:
    return replace(row, at=row.at + round(seconds * SECOND))


def test_the_age_of_a_matched_row_is_that_of_its_timestamp() -> None:
    """Of a row that takes effect after its timestamp, as changes of a database do, the effect was taken."""
    events = tuple(event(0, "a", n, x=1) for n in (10, 40, 60, 90))
    at = BEGIN + 10 * SECOND
    right = (Change(at + 40 * SECOND, at, {"no": 0, "of": "a", "p": 7, "q": None}),)
    items = Twin.of("I", ITEMS, appends=False)
    joined = Twin.of("E", EVENTS, appends=True).join(items, ["k", "g"], ["p"], how="left", within=(60, 0))
    sources = {"E": Source(EVENTS, events), "I": Source(ITEMS, right, deletes=True)}
    again_and_again(Program.numbered(sources, {"D": joined}, 1000))


def test_a_changelog_has_the_inserts_that_take_effect_after_their_timestamps() -> None:
    """They were taken for ends that are corrected: the changelog had a delete less, and no insert."""
    rows = (price(0, 0), later(price(0, 10, c=Fixed("1.25")), 50), later(price(20, 10, c=Fixed("1.30")), 50))
    events = Twin.of("C", PRICES, appends=False).changelog("gone", marks_deletes=True)
    counted = events.aggregate(["s", "gone"], [Count(window=Hopping("forever", "30s"), into_field="n")])
    sources = {"C": Source(PRICES, rows, deletes=True)}
    again_and_again(Program.numbered(sources, {"D": events, "N": counted}, 1000))


@pytest.mark.parametrize("windows", [("30s",), ("30s", "90s"), ("90s", "30s"), ("30s", "forever")], ids=str)
def test_a_key_whose_rows_are_superseded_when_they_have_left_their_windows_is_not_found(windows: Any) -> None:
    """The state remembered the key of rows that had left; without them the key was never there along the other column."""
    rows = (
        price(0, 0),
        price(100, 5, d=Fixed("1.30")),
        price(200, 16, d=Fixed("1.30")),
        price(300, 170, s=(1, "a")),
        price(301, 170, s=(1, "a"), d=Fixed("1.30")),
        price(400, 400, s=(1, "b")),
    )
    counts = [Count(window=Continuous(each), into_field=f"n{place}") for place, each in enumerate(windows)]
    grouped = Twin.of("C", PRICES, appends=False).aggregate(["s"], counts, along="w")
    program = Program.numbered({"C": Source(PRICES, rows, deletes=True)}, {"D": grouped})
    for size in (3, 4, 5, 6):
        live = Live(program, 1)
        for row in program.sources["C"].rows[:size]:
            live.feed([("C", 0, [row])])
        source = replace(program.sources["C"], rows=program.sources["C"].rows[:size])
        check(replace(program, sources={"C": source}), live.outcome(), [])


def test_rows_of_two_sources_with_one_place_come_in_one_order() -> None:
    """Of rows with the same key, instant and number the one that came last stayed, and the other's changes remained."""
    place = {"s": (0, None), "n": None, "open": True}
    rows = [
        Change(BEGIN + at * SECOND, BEGIN + at * SECOND, {**place, "d": Fixed(d)}, seq=at)
        for at, d in ((0, "1.25"), (0, "1.30"), (5, "2.00"), (5, "1.00"))
    ]
    source = Source(PLACES, tuple(rows), stacked=2)
    program = Program({"P": source}, {"D": Twin.of("P", PLACES, appends=False)})
    outcomes = []
    for order in (rows, rows[::-1]):
        live = Live(program, 1)
        for row in order:
            live.feed([("P", row.seq % 2, [row])])
        outcomes.append(live.outcome().changes("D"))
    retained = [Fixed("1.30"), Fixed("2.00")]
    assert outcomes[0] == outcomes[1]
    assert sorted(row[0] for row, count in outcomes[0].items() if count > 0) == retained


def test_a_row_that_ends_after_it_left_its_window_is_not_forgotten_before() -> None:
    """Behind the watermark its coming and its end are one entry: nobody knew any more when it had left."""
    rows = tuple(Change(BEGIN + n * SECOND, BEGIN + n * SECOND, {"id": 0, "c": 0, "u": None}) for n in (0, 0, 35, 35))
    counted = Twin.of("U", USERS, appends=False).aggregate(["id"], [Count(window=Continuous("30s"), into_field="n")])
    again_and_again(Program.numbered({"U": Source(USERS, rows)}, {"D": counted}))


def test_a_joined_dataset_declares_its_columns_in_another_order_than_its_pipeline() -> None:
    """The index kept them as the pipeline has them, the join read them as declared: `p` and `x` changed places."""
    events = (event(1, "a", 10, x=7), event(1, "a", 20, x=8))
    step = Step("k + 40", col("k") + 40, lambda row: row["k"] + 40)
    made = Twin.of("E", EVENTS, appends=True).assign("p", int, step)
    pairs = made.drop(["f", "l"]).dropnull(["x"]).latest("k", "g")
    (k, g), (x, p) = pairs.schema.keys, pairs.schema.values
    declared = Schema((g, k), (p, x), "t", ("p", "t", "g", "x", "k"))
    named = Twin.of("P", declared, appends=False)
    joined = Twin.of("E", EVENTS, appends=True).rename({"x": "y"}).join(named, ["g", "k"], ["p", "x"], how="left")
    derived = {"P": replace(pairs, declared=declared), "D": joined}
    again_and_again(Program.numbered({"E": Source(EVENTS, events)}, derived, 1000))


def test_a_row_that_comes_late_and_ends_in_one_stride_has_been_there() -> None:
    """It was taken for one that was corrected: nothing told of the stride, and the result before it stayed."""
    rows = (later(price(10, 80), 55), later(price(70, 0), 5), price(200, 80, d=Fixed("0.00")))
    counts = [Count(window=Hopping("forever", each), into_field=f"n{each}") for each in ("10s", "30s")]
    counted = Twin.of("C", PRICES, appends=False).aggregate(["w"], counts)
    again_and_again(Program.numbered({"C": Source(PRICES, rows, deletes=True)}, {"D": counted}, 1000))


@pytest.mark.parametrize("window", [None, Tumbling("30s"), Session("15s")], ids=str)
def test_nan_is_a_key_like_others(window: Any) -> None:
    """The reference gave it on as a text."""
    values = [math.nan, math.inf, 0.0, -0.0, math.nan, -math.inf, math.nan]
    events = tuple(event(1, "a", 10 * place, f=value) for place, value in enumerate(values))
    there = Twin.of("E", EVENTS, appends=True).dropnull(["f"])
    if window is None:
        counted = there.aggregate(["f"], [Count(window=Hopping("forever", "30s"), into_field="n")])
    else:
        counted = there.aggregate(["f"], [Count(into_field="n")], window=window)
    again_and_again(Program.numbered({"E": Source(EVENTS, events)}, {"D": counted, "L": there.latest("f")}, 1000))


@pytest.mark.parametrize("kind", [LastK, FirstK])
def test_a_late_row_takes_away_what_follows_it_and_not_what_precedes_it(kind: Any) -> None:
    """Two changes at one instant, one of each sign, were taken for one row that was retracted."""
    events = tuple(event(0, "a", 10 * place + 1) for place in (*range(1, 5), *range(6, 14), 5))
    ever = [Count(window=Hopping("forever", "10s"), into_field="n")]
    counted = Twin.of("E", EVENTS, appends=True).aggregate(["k", "g"], ever)
    window = Continuous("forever")
    ends = [kind(of="k", limit=2, dedup=False, dropnull=False, window=window, into_field="ends")]
    program = Program.numbered({"E": Source(EVENTS, events)}, {"D": counted.aggregate(["g"], ends)}, 100_000)
    live = Live(program, 1)
    for rows in (program.sources["E"].rows[:-1], program.sources["E"].rows[-1:]):
        live.feed([("E", 0, list(rows))])
    check(program, live.outcome(), [])
