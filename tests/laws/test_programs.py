"""Any pipelines over any changes: the same in one call, as a stream, from history, and by plain Python."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import polars as pl
from hypothesis import given, note
from hypothesis import strategies as st

from tests.aggregating import instant
from tests.comparing import assert_rows
from tests.laws.engines import Outcome, at_rest, in_one_call, streamed, told
from tests.laws.programs import BEGIN, programs
from tests.laws.twins import Program, World, micros_of
from tests.reference import SECOND, Change, continuous, is_found
from tests.reference_operators import current, grouped

MISSING = 9


def changes(world: World, program: Program, dataset: str) -> Counter[tuple[Any, ...]]:
    """Return the changes of a dataset by the reference, as engines tell them."""
    schema = program.derived[dataset].schema
    found: Counter[tuple[Any, ...]] = Counter()
    for each in world.flows[dataset].changes:
        values = {**each.values, schema.timestamp: each.time}
        found[(*(told(values[name]) for name in schema.names), each.at)] += each.weight
    return Counter({row: count for row, count in found.items() if count})


def check(program: Program, outcome: Outcome, points: list[int]) -> None:
    """Assert that an engine says what the reference says."""
    world = program.world()
    if any(outcome.frontiers.get(operator, newest) != newest for operator, newest in world.frontiers.items()):
        # what has been seen stays seen, even if the row was taken back
        assert all(outcome.frontiers[operator] >= newest for operator, newest in world.frontiers.items())
        world = program.world(outcome.frontiers)
    for name, twin in program.derived.items():
        if twin.asked is not None:
            check_asked(program, outcome, name, twin.asked(world).changes, points)
            continue
        found, wanted = outcome.changes(name), changes(world, program, name)
        assert found == wanted, f"{name}\ntoo many: {found - wanted}\nmissing: {wanted - found}"
        if twin.keys:
            check_lookups(program, outcome, world, name, points)


def asked_frame(
    program: Program, name: str, asked: list[tuple[tuple[Any, ...], int]]
) -> tuple[pl.DataFrame, pl.Series]:
    """Return keys and instants as a lookup gets them."""
    keys = dict(program.derived[name].schema.keys)
    rows = [[_stored(part) for part in key] for key, _ in asked]
    frame = pl.DataFrame(rows, schema={column: dtype.polars() for column, dtype in keys.items()}, orient="row")
    return frame, pl.Series([instant(at) for _, at in asked], dtype=pl.Datetime("us", "UTC"))


def _stored(part: Any) -> Any:
    return {"begin": instant(part[0]), "end": instant(part[1])} if isinstance(part, tuple) else part


def check_lookups(program: Program, outcome: Outcome, world: World, name: str, points: list[int]) -> None:
    """Assert that lookups find the row that is current."""
    flow, schema = world.flows[name], program.derived[name].schema
    groups = grouped(flow.changes, flow.keys)
    edges = {change.at + apart for change in flow.changes for apart in (-1, 0)}
    asked = [(key, at) for key in groups for at in sorted({*points, *edges})]
    if not asked:
        return
    rows, found = outcome.lookups.online(name, *asked_frame(program, name, asked))
    for (key, at), row, is_there in zip(asked, rows.iter_rows(named=True), found, strict=True):
        wanted = current(flow, key, at)
        assert is_there == (wanted is not None), f"{name} {key} at {at}: found={is_there}"
        if wanted is not None:
            values = {**wanted.values, schema.timestamp: wanted.time}
            assert {column: told(value) for column, value in row.items()} == {
                column: told(values[column]) for column in schema.names
            }, f"{name} {key} at {at}"


def check_asked(program: Program, outcome: Outcome, name: str, flow: list[Change], points: list[int]) -> None:
    """Assert that the aggregate at the end of a pipeline has the values of its windows at every instant of interest."""
    operator: Any = program.derived[name].node.operator
    groups = grouped(flow, operator.keys)
    lengths = [window.duration_us or 0 for window in operator.windows]
    edges = {change.at + length + apart for change in flow for length in lengths for apart in (-1, 0, SECOND)}
    asked = [(key, at) for key in groups for at in sorted({*points, *edges})]
    if not asked:
        return
    rows, found = outcome.lookups.online(name, *asked_frame(program, name, asked))
    for (key, at), row, is_there in zip(asked, rows.iter_rows(named=True), found, strict=True):
        mine = groups[key]
        assert is_there == is_found(mine, at), f"{name} {key} at {at}: found={is_there}"
        wanted = [
            continuous(each, mine, at, each.window.duration_us) if is_there else each.missing
            for each in operator.aggregates
        ]
        values = [micros_of(row[each.into_field]) for each in operator.aggregates]
        assert_rows(values, wanted, 1e3, f"{name} {key} at {at}")


@given(program=programs(), seed=st.integers(0, 2**32), points=st.lists(st.integers(0, 400), max_size=3))
def test_any_pipelines_over_any_changes(program: Program, seed: int, points: list[int]) -> None:
    note(repr(program))
    chance, at = random.Random(seed), [BEGIN + point * SECOND // 2 for point in points]
    check(program, in_one_call(program), at)
    check(program, streamed(program, chance), at)
    check(program, at_rest(program, chance), at)
    check(program, at_rest(program, chance, live_after=True), at)
