"""Random aggregates and windows: what of them fits the columns there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.laws.expressions import named
from tests.laws.sources import (
    BOOL,
    CENTS,
    DATE,
    DATETIME,
    GRADE,
    INT,
    INTS,
    OPTIONAL_CENTS,
    OPTIONAL_DATE,
    OPTIONAL_FLOAT,
    OPTIONAL_INT,
    OPTIONAL_STR,
    POINT,
    STR,
    WINDOW,
)
from tests.laws.twins import Twin
from umbel.aggregates import Average, Count, Distinct, ExpDecaySum, FirstK, LastK, Max, Min, Quantile, Stddev, Sum
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

Draw = Callable[[st.SearchStrategy[Any]], Any]
Entry = tuple[type, dict[str, Any]]

CONTINUOUS = (Continuous("30s"), Continuous("90s"), Continuous("forever"))
COLLAPSING = (Continuous("4000s"), Continuous("9000s"), Continuous("90s"))
"""Windows whose tiles, of 40 s and of 90 s, can hold more instants than they keep apart."""
DISCRETE = (
    Tumbling("30s"),
    Tumbling("1m"),
    Hopping("90s", "30s"),
    Hopping("50s", "20s"),
    Hopping("2m", "7s"),  # of 120 panes
    Hopping("forever", "30s"),
)
BACK = (Tumbling("30s", lookback="20s"), Hopping("1m", "30s", lookback="20s"))
CUMULATIVE = (Hopping("forever", "30s"), Hopping("forever", "10s"))
BY_WINDOW = (
    Tumbling("30s"),
    Hopping("1m", "20s"),
    Hopping("70s", "30s"),
    Hopping("90s", "10s"),  # of 9 panes
    Session("1s"),
    Session("15s"),
    Session("40s"),
)

NUMERIC = (INT, OPTIONAL_INT, OPTIONAL_FLOAT, CENTS, OPTIONAL_CENTS, GRADE)
ORDERED = (DATE, DATETIME, OPTIONAL_DATE)
HASHABLE = (INT, OPTIONAL_INT, STR, OPTIONAL_STR, BOOL, CENTS, OPTIONAL_CENTS, INTS)
OPTIONALS = (OPTIONAL_INT, OPTIONAL_FLOAT, OPTIONAL_CENTS, OPTIONAL_DATE, OPTIONAL_STR)
ANYTHING = (POINT, STR, BOOL, INTS, WINDOW)


def _menu(draw: Draw, twin: Twin, *, queried: bool) -> list[Entry]:
    menu: list[Entry] = [(Count, {})]
    numeric = named(twin, *NUMERIC)
    for of in numeric:
        dtype = twin.schema.dtypes[of]
        is_large = dtype in (CENTS, OPTIONAL_CENTS)  # some are so large that to retract them costs digits
        if not (of[1:].isdigit() and dtype == OPTIONAL_FLOAT):  # of an aggregation: as large
            menu += [(kind, {"of": of}) for kind in (Sum, Average, *([] if is_large else [Stddev]))]
        menu += [(Quantile, {"of": of, "p": 0.5, "approx": True})]
        if queried and not is_large:
            menu += [(ExpDecaySum, {"of": of, "half_life": "30s"})]
    for of in (*numeric, *named(twin, *ORDERED)):
        menu += [(Max, {"of": of}), (Min, {"of": of})]
    for of in named(twin, *NUMERIC, *ORDERED, *ANYTHING):
        menu += [
            (LastK, {"of": of, "limit": 2, "dedup": draw(st.booleans())}),
            (FirstK, {"of": of, "limit": 2, "dedup": draw(st.booleans()), "dropnull": False}),
        ]
    for of in named(twin, *HASHABLE):
        menu += [(Count, {"of": of, "unique": True, "approx": True}), (Distinct, {"of": of, "unordered": True})]
    for of in named(twin, *OPTIONALS):
        menu += [
            (Count, {"of": of, "dropnull": True}),
            (LastK, {"of": of, "limit": 3, "dedup": False, "dropnull": True}),
        ]
    return menu


def aggregates(draw: Draw, twin: Twin, windows: Sequence[Any], *, queried: bool) -> list[Any]:
    """Draw some aggregates over the columns of a twin, each over one of the windows."""
    chosen = draw(st.lists(st.sampled_from(_menu(draw, twin, queried=queried)), min_size=1, max_size=3))
    taken = {name[0] for name in twin.schema.names if name[1:].isdigit()}
    prefix = next(each for each in "abcdefghij" if each not in taken)
    return [
        kind(**arguments, window=draw(st.sampled_from(windows)), into_field=f"{prefix}{number}")
        for number, (kind, arguments) in enumerate(chosen)
    ]
