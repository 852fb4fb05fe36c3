"""Aggregations: their schema, what their definition refuses, and which states they share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from umbel.aggregates import Average, Count, ExpDecaySum, LastK, Stddev, Sum
from umbel.errors import InvalidType, InvalidValue, NotSupported
from umbel.operators.aggregate import Aggregation, EmittedAggregation
from umbel.operators.aggregate import aggregate as made
from umbel.operators.leaf import Leaf
from umbel.operators.operator import Clock
from umbel.types import dtypes as d
from umbel.types.epochs import LAST
from umbel.types.schema import Schema
from umbel.types.windows import Continuous, Hopping, Session, Tumbling
from umbel.windowing.tiling import Tiling

HOUR, DAY, EVER = Continuous("1h"), Continuous("1d"), Continuous("forever")
VALUES = (
    ("uid", d.Int()),
    ("amount", d.Optional(d.Float())),
    ("paid", d.Datetime()),
    ("maybe", d.Optional(d.Int())),
    ("name", d.Str()),
)


def leaf(*keys: str, appends: bool = True) -> Leaf:
    names = dict(VALUES)
    stored = tuple((name, names[name]) for name in names if name not in keys)
    columns = Schema(tuple((name, names[name]) for name in keys), stored, "t")
    return Leaf(dataset="E", version=1, columns=columns, appends=appends)


def aggregate(
    *aggregates: Any, keys: tuple[str, ...] = ("uid",), of: Leaf | None = None, **options: Any
) -> Aggregation:
    named = (each if each.into_field else each.named(f"a{number}") for number, each in enumerate(aggregates))
    return made(parents=(of or leaf(),), pipeline="D.p", keys=keys, aggregates=tuple(named), **options)


def test_schema() -> None:
    node = aggregate(Count(window=HOUR, into_field="n"), Sum(of="amount", window=EVER, into_field="total"))
    assert node.schema == Schema((("uid", d.Int()),), (("n", d.Int()), ("total", d.Float())), "t")


def test_schema_with_window_key() -> None:
    node = aggregate(Count(into_field="n"), window=Tumbling("1h"))
    assert node.schema == Schema((("uid", d.Int()), ("window", d.Window())), (("n", d.Int()),), "t")
    assert aggregate(window=Session("1h")).schema.values == ()


def test_terminal() -> None:
    assert aggregate(Count(window=HOUR)).is_terminal
    assert aggregate(ExpDecaySum(of="amount", half_life="1h", window=Tumbling("1h"))).is_terminal
    assert not aggregate(Count(window=HOUR), emit="final").is_terminal
    assert not aggregate(Count(window=Tumbling("1h"))).is_terminal
    assert not aggregate(Count(), window=Session("1h")).is_terminal


def test_identity() -> None:
    one = aggregate(Count(window=HOUR))
    assert one.id == aggregate(Count(window=Continuous("60m"))).id
    others = [
        aggregate(Count(window=DAY)),
        aggregate(Count(window=HOUR), tiling=Tiling(accuracy=0.02)),
        aggregate(Count(window=HOUR), emit="final"),
        aggregate(Count(of="maybe", dropnull=True, window=HOUR)),
    ]
    assert len({one.id, *(other.id for other in others)}) == 5


def test_equal_states_are_shared() -> None:
    node = aggregate(
        *(Average(of="amount", window=w) for w in (HOUR, DAY, EVER)), Count(window=HOUR), Count(window=DAY)
    )
    assert list(node.partials.columns) == ["_state0.sum", "_state0.count"]


def test_history_is_what_results_depend_on() -> None:
    node = aggregate(Sum(of="amount", window=HOUR), Count(window=HOUR))
    assert node.history_columns() == ["uid", "amount", "t", "_at", "_weight", "_seq"]
    rows = pl.DataFrame(schema=leaf().schema.changes())
    assert node.history(rows).columns == node.history_columns()
    along = aggregate(Count(window=HOUR), along="paid")
    assert along.history_columns() == ["uid", "paid", "t", "_at", "_weight", "_seq"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"keys": ("nope",)}, InvalidValue, ["'nope'", "uid"]),
        ({"keys": ("t",)}, InvalidValue, ["'t'"]),
        ({"keys": ()}, InvalidValue, ["at least one key"]),
        ({"keys": ("maybe",)}, InvalidValue, ["'maybe'", "optional"]),
        ({"emit": "sometimes"}, InvalidValue, ["'eager'", "'final'", "sometimes"]),
        ({"emit": "final", "along": "paid"}, InvalidValue, ["along", "final"]),
        ({"along": 3}, InvalidValue, ["along", "3"]),
        ({"along": "nope"}, InvalidValue, ["along", "'nope'"]),
        ({"along": "t"}, InvalidValue, ["along", "'t'"]),
        ({"along": "name"}, InvalidValue, ["along", "'name'", "str"]),
        ({"window": HOUR}, InvalidType, ["Continuous", "Tumbling"]),
        ({"window": "1h"}, InvalidType, ["str"]),
        ({"window": Hopping("forever", "1h")}, InvalidType, ["forever"]),
        ({"window": Tumbling("1h"), "along": "paid"}, InvalidValue, ["along", "paid"]),
    ],
)
def test_what_is_refused(options: dict[str, Any], error: type[Exception], words: list[str]) -> None:
    windowed = Count() if "window" in options else Count(window=HOUR)
    with pytest.raises(error) as caught:
        aggregate(windowed, **options)
    assert all(word in str(caught.value) for word in ["D.p", *words]), str(caught.value)


@pytest.mark.parametrize(
    ("aggregates", "options", "error", "words"),
    [
        ([], {}, InvalidType, ["no aggregates"]),
        ([Count()], {}, InvalidValue, ["Count 'a0'", "no window"]),
        ([Count(window=HOUR), Sum(of="amount", window=Tumbling("1h"))], {}, InvalidValue, ["Continuous", "Tumbling"]),
        (
            [Count(window=Tumbling("1h")), Count(window=Tumbling("1h", lookback="1h"))],
            {},
            InvalidValue,
            ["lookback"],
        ),
        ([Count(window=Tumbling("2h"))], {"window": Tumbling("1h")}, InvalidValue, ["2h", "1h"]),
        ([ExpDecaySum(of="amount", half_life="1h", window=HOUR)], {"emit": "final"}, InvalidValue, ["ExpDecaySum"]),
        ([ExpDecaySum(of="amount", half_life="1h")], {"window": Tumbling("1h")}, NotSupported, ["ExpDecaySum"]),
        ([Count(window=HOUR, into_field="uid")], {}, InvalidValue, ["'uid'", "twice"]),
        ([Count(window=HOUR, into_field="n"), Count(window=DAY, into_field="n")], {}, InvalidValue, ["'n'", "twice"]),
        ([Count(window=HOUR, into_field="t")], {}, InvalidValue, ["'t'", "twice"]),
        ([Count(into_field="window")], {"window": Tumbling("1h")}, InvalidValue, ["'window'", "twice"]),
        ([Sum(of="name", window=HOUR)], {}, InvalidType, ["Sum", "'name'", "str"]),
        ([Stddev(of="nope", window=HOUR)], {}, InvalidValue, ["Stddev", "'nope'"]),
        ([Count(window=HOUR, into_field="_state")], {}, InvalidValue, ["'_state'", "reserved"]),
    ],
)
def test_which_aggregates_are_refused(
    aggregates: list[Any], options: dict[str, Any], error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        aggregate(*aggregates, **options)
    assert all(word in str(caught.value) for word in ["D.p", *words]), str(caught.value)


def test_an_aggregate_needs_a_name() -> None:
    with pytest.raises(InvalidValue, match="Count has no name"):
        made(parents=(leaf(),), keys=("uid",), aggregates=(Count(window=HOUR),))


def test_keyed_input() -> None:
    table = leaf("name", appends=False)
    for window in (Tumbling("1h"), Hopping("2h", "1h")):
        with pytest.raises(InvalidValue, match=r"(?s)keyed.*forever.*along"):
            aggregate(Count(window=window), of=table)
        aggregate(Count(window=window), of=table, along="paid")
        with pytest.raises(InvalidValue, match="keyless"):
            aggregate(Count(), of=table, window=window)
    aggregate(Count(window=Hopping("forever", "1h")), of=table)
    with pytest.warns(DeprecationWarning, match="Continuous"):
        aggregate(Count(window=HOUR), of=table)


@pytest.mark.parametrize(
    ("window", "by_group"),
    [
        *((window, by_group) for window in (Tumbling("1h"), Hopping("2h", "1h")) for by_group in (False, True)),
        (Session("1h"), True),
    ],
)
def test_remedies_for_final_results_of_keyed_input_lead_on(window: Any, by_group: bool) -> None:
    """Neither refusal names what the other one refuses: `along`, or a window in the aggregates."""
    made_of = {"window": window} if by_group else {}
    counted = Count() if by_group else Count(window=window)
    table = leaf("name", appends=False)
    with pytest.raises(InvalidValue) as without:
        aggregate(counted, of=table, emit="final", **made_of)
    with pytest.raises(InvalidValue) as with_along:
        aggregate(counted, of=table, emit="final", along="paid", **made_of)
    assert "along" not in str(without.value)
    assert "into the aggregates" not in str(without.value)
    assert "keyless with changelog" in str(without.value)
    assert "leave emit='final' out" in str(with_along.value)
    assert "keyless with changelog" in str(with_along.value)
    aggregate(counted, of=leaf(), emit="final", **made_of)  # a changelog is such a stream


def test_a_remedy_for_windows_of_keyed_groups_fits_the_window() -> None:
    table = leaf("name", appends=False)
    with pytest.raises(InvalidValue, match="into the aggregates and name the time with along"):
        aggregate(Count(), of=table, window=Tumbling("1h"))
    aggregate(Count(window=Tumbling("1h")), of=table, along="paid")
    with pytest.raises(InvalidValue, match=r"hint: make it keyless with changelog$"):
        aggregate(Count(), of=table, window=Session("1h"))  # no aggregate takes a session


def test_the_warning_of_final_continuous_windows_over_keyed_input_names_no_along() -> None:
    with pytest.warns(DeprecationWarning, match="forever") as caught:
        aggregate(Count(window=HOUR), of=leaf("name", appends=False), emit="final")
    assert "along" not in str(caught[0].message)


def test_groups_by_several_keys_of_any_type() -> None:
    node = aggregate(LastK(of="amount", limit=1, dedup=False, window=HOUR), keys=("name", "uid"))
    assert node.exchange() == (("name", "uid"),)


def test_a_column_called_window_is_a_key_only_without_a_window_of_the_groupby() -> None:
    columns = Schema((), (("window", d.Int()), ("uid", d.Int())), "t")
    of = Leaf(dataset="E", version=1, columns=columns, appends=True)
    with pytest.raises(InvalidValue, match="column 'window' cannot be a key beside the window"):
        aggregate(Count(), of=of, keys=("window",), window=Tumbling("1h"))
    assert aggregate(Count(window=HOUR), of=of, keys=("window",)).schema.key_names == ["window"]
    assert aggregate(Count(), of=of, keys=("uid",), window=Tumbling("1h")).schema.key_names == ["uid", "window"]


def test_results_come_up_to_the_watermark_or_what_has_come() -> None:
    """Of continuous windows those before the watermark, all without one; of others those of whole seconds."""
    at = datetime(2026, 1, 1, 12, 0, 1, 500_000, UTC)
    micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    moving, fixed = (aggregate(Count(window=each), emit="final") for each in (HOUR, Tumbling("1h")))
    assert isinstance(moving, EmittedAggregation)
    assert isinstance(fixed, EmittedAggregation)
    known = Clock(watermark=at, stream_time=at + timedelta(hours=9), waits=True)
    assert (moving._horizon(known), fixed._horizon(known)) == (micros - 1, micros - 500_000)
    awaited = Clock(stream_time=at, waits=True)
    assert (moving._horizon(awaited), fixed._horizon(awaited)) == (None, None)
    without = Clock(stream_time=at)
    assert (moving._horizon(without), fixed._horizon(without)) == (LAST, micros - 500_000)
