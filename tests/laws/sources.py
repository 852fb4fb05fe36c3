"""The datasets random programs begin with: their schemas, and rows of any kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal as Fixed
from typing import Any
from typing import Optional as Perhaps

from hypothesis import strategies as st

from tests.laws.twins import Source
from tests.reference import SECOND, Change
from umbel.types.dtypes import Between, Bool, Date, Datetime, Decimal, DType, Float, Int, List, Optional, Str, Window
from umbel.types.schema import REPLACING, TRUNCATION, Schema
from umbel.types.structs import struct, struct_type

BEGIN = 1_700_000_040 * SECOND
"""A whole minute."""


@struct
class Point:
    """Somewhere."""

    a: int
    b: Perhaps[str]


INT, FLOAT, STR, BOOL, DATE, DATETIME, WINDOW = Int(), Float(), Str(), Bool(), Date(), Datetime(), Window()
CENTS, GRADE, POINT = Decimal(2), Between(Int(), 0, 5), struct_type(Point)
OPTIONAL_INT, OPTIONAL_FLOAT, OPTIONAL_CENTS = Optional(INT), Optional(Float()), Optional(CENTS)
OPTIONAL_DATE, OPTIONAL_STR = Optional(DATE), Optional(STR)
INTS, STRS, GAPPY = List(INT), List(STR), Optional(List(OPTIONAL_INT))
ANNOTATIONS: dict[DType, Any] = {
    each: each.annotation() for each in (INT, STR, OPTIONAL_INT, OPTIONAL_FLOAT, CENTS, POINT, OPTIONAL_STR)
}

EVENTS = Schema((), (("k", INT), ("g", STR), ("x", OPTIONAL_INT), ("f", OPTIONAL_FLOAT), ("l", INTS)), "t")
USERS = Schema((("id", INT),), (("c", INT), ("u", OPTIONAL_INT)), "since")
ITEMS = Schema((("no", INT), ("of", STR)), (("p", INT), ("q", OPTIONAL_FLOAT)), "at")
VISITS = Schema(
    (),
    (
        ("k", INT),
        ("g", STR),
        ("d", CENTS),
        ("o", OPTIONAL_CENTS),
        ("s", POINT),
        ("w", DATETIME),
        ("day", OPTIONAL_DATE),
        ("z", GRADE),
        ("l", INTS),
        ("m", STRS),
        ("h", GAPPY),
    ),
    "t",
)
PRICES = Schema((("d", CENTS),), (("s", POINT), ("c", CENTS), ("w", DATETIME), ("y", OPTIONAL_DATE)), "as_of")
PLACES = Schema((("s", POINT),), (("d", CENTS), ("n", OPTIONAL_CENTS), ("open", BOOL)), "seen")

small = st.integers(0, 2)
letters = st.sampled_from(("a", "b", ""))
instants = st.builds(
    lambda place, half: BEGIN + place * 5 * SECOND + half * SECOND // 2, st.integers(0, 40), st.sampled_from((0, 0, 1))
)
numbers = st.none() | st.integers(-3, 5)
fractions = (
    st.none()
    | st.integers(-8, 8).map(lambda n: n / 4)
    | st.integers(-8, 8).map(lambda n: n / 10)
    | st.sampled_from((-0.0, math.inf, -math.inf, math.nan))
)
"""Quarters have exact sums in any order, tenths have not."""
amounts = st.sampled_from([Fixed(text) for text in ("0.00", "1.25", "-0.05", "1.30", "12345678901234567.89")])
points = st.sampled_from([(0, None), (1, "a"), (1, None), (0, "b")])
days = st.none() | st.integers(1, 3).map(lambda day: date(2024, 2, 26 + day))


delays = st.sampled_from((0, 0, 0, 0, 5, 50, 300)).map(SECOND.__mul__)
"""How much later than their timestamps rows take effect, as changes of a database do."""


AT_ONCE = st.just(0)


def _rows(
    values: st.SearchStrategy[dict[str, Any]],
    weights: Sequence[int] = (1,),
    delays: st.SearchStrategy[int] = AT_ONCE,
) -> st.SearchStrategy[Any]:
    row = st.builds(
        lambda time, delay, value, weight: Change(time + delay, time, value, weight),
        *(instants, delays, values, st.sampled_from(tuple(weights))),
    )
    scattered = st.lists(row, max_size=10).map(tuple)
    if weights != (1,):
        scattered |= _emptied(row) | _replaced(row)
    crowd = st.builds(
        lambda begin, rows: tuple(
            Change(at, at, each) for each, at in zip(rows, range(begin, 2**62, 2 * SECOND), strict=False)
        ),
        instants,
        st.lists(values, min_size=9, max_size=12),
    )
    return st.one_of(scattered, scattered, scattered, crowd)


def _emptied(row: st.SearchStrategy[Change]) -> st.SearchStrategy[Any]:
    """Return changes in order of their instants, some of which empty the table, as TRUNCATE does."""
    emptying = st.builds(lambda at: Change(at, at, {}, TRUNCATION), instants)
    changes = st.lists(st.one_of(row, row, row, emptying), max_size=10)
    return changes.map(lambda found: tuple(sorted(found, key=lambda change: change.at)))


def _replaced(row: st.SearchStrategy[Change]) -> st.SearchStrategy[Any]:
    """Return changes as a database commits them: some replace what their key had before, also if that begins later."""
    replacing = st.builds(lambda each: replace(each, weight=each.weight * REPLACING), row)
    return st.lists(st.one_of(row, replacing, replacing), max_size=10).map(tuple)


def committed(source: Source, disorder: int) -> Source:
    """Return a source with the changes that replace others in an order of commits.

    Args:
        source: where rows are.
        disorder: how many seconds a change may come after later ones.
    """
    if not any(abs(row.weight) == REPLACING for row in source.rows):
        return source
    delays = {id(row): place * 37 % 100 * disorder * SECOND // 100 for place, row in enumerate(source.rows)}
    return replace(source, rows=tuple(sorted(source.rows, key=lambda row: row.at + delays[id(row)])))


def _side_by_side(
    pairs: list[tuple[int, str]], gaps: list[int | None] | None, cut: bool, row: dict[str, Any]
) -> dict[str, Any]:
    """Return a row with two lists of one length; the second may be empty where the first has one element."""
    letters = [letter for _, letter in pairs]
    return {**row, "l": [n for n, _ in pairs], "m": [] if cut and len(pairs) == 1 else letters, "h": gaps}


events = _rows(
    st.fixed_dictionaries({"k": small, "g": letters, "x": numbers, "f": fractions, "l": st.lists(small, max_size=2)})
)
users = _rows(st.fixed_dictionaries({"id": small, "c": small, "u": numbers}))
items = _rows(st.fixed_dictionaries({"no": small, "of": letters, "p": small, "q": fractions}), (1, 1, -1), delays)
visits = _rows(
    st.builds(
        _side_by_side,
        st.lists(st.tuples(small, letters), max_size=2),
        st.none() | st.lists(st.none() | small, max_size=2),
        st.booleans(),
        st.fixed_dictionaries(
            {
                "k": small,
                "g": letters,
                "d": amounts,
                "o": st.none() | amounts,
                "s": points,
                "w": instants,
                "day": days,
                "z": st.integers(0, 5),
            }
        ),
    )
)
prices = _rows(
    st.fixed_dictionaries({"d": amounts, "s": points, "c": amounts, "w": instants, "y": days}), (1, 1, -1), delays
)
places = _rows(st.fixed_dictionaries({"s": points, "d": amounts, "n": st.none() | amounts, "open": st.booleans()}))


SHIFTS = (0, 0, 0, -BEGIN - 60 * SECOND - 1, 333_333, -4_000_000_000 * SECOND - 7, 7_000_000_000 * SECOND + 1)
"""How far the instants of a program lie from those drawn: across the epoch, off whole seconds, before 1900, after 2200."""


def shifted(source: Source, shift: int) -> Source:
    """Return a source whose instants are so many µs later, those in its columns included."""
    instants = [name for name, dtype in (*source.schema.keys, *source.schema.values) if dtype == DATETIME]

    def later(row: Change) -> Change:
        values = {name: row.values[name] + shift for name in instants if name in row.values}
        return replace(row, at=row.at + shift, time=row.time + shift, values={**row.values, **values})

    return replace(source, rows=tuple(map(later, source.rows)))


def permuted(draw: Any, schema: Schema) -> Schema:
    """Draw another order of the same columns: of the keys, of the values, and of all of them."""
    keys, values = draw(st.permutations(schema.keys)), draw(st.permutations(schema.values))
    order = draw(st.just(()) | st.permutations(schema.names))
    return Schema(tuple(keys), tuple(values), schema.timestamp, tuple(order))


def all_sources(draw: Any) -> dict[str, Source]:
    """Draw a source of each kind, the plainest first, its columns in any order."""
    found = {
        "U": Source(USERS, draw(users)),
        "E": Source(EVENTS, draw(events), stacked=draw(st.integers(1, 2))),
        "F": Source(EVENTS, draw(events)),
        "I": Source(ITEMS, draw(items), deletes=True),
        "V": Source(VISITS, draw(visits)),
        "P": Source(PLACES, draw(places), stacked=draw(st.integers(1, 2))),
        "C": Source(PRICES, draw(prices), deletes=True),
    }
    return {name: replace(each, schema=permuted(draw, each.schema)) for name, each in found.items()}
