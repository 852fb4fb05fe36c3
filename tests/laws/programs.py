"""Random programs: pipelines of any operators over changes of any kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from tests.laws.twins import Program, Source, Step, Twin
from tests.reference import SECOND, Change
from umbel.aggregates import Average, Count, Distinct, ExpDecaySum, FirstK, LastK, Max, Min, Quantile, Stddev, Sum
from umbel.expr import col
from umbel.types.dtypes import DType, Float, Int, List, Optional, Str
from umbel.types.schema import Schema
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

BEGIN = 1_700_000_040 * SECOND
"""A whole minute."""
Draw = Callable[[st.SearchStrategy[Any]], Any]

OPTIONAL_INT, OPTIONAL_FLOAT = Optional(Int()), Optional(Float())
EVENTS = Schema((), (("k", Int()), ("g", Str()), ("x", OPTIONAL_INT), ("f", OPTIONAL_FLOAT), ("l", List(Int()))), "t")
USERS = Schema((("id", Int()),), (("c", Int()), ("u", OPTIONAL_INT)), "since")
ITEMS = Schema((("no", Int()), ("of", Str())), (("p", Int()), ("q", OPTIONAL_FLOAT)), "at")
ANNOTATIONS: dict[DType, Any] = {each: each.annotation() for each in (Int(), Str(), OPTIONAL_INT, OPTIONAL_FLOAT)}

# ---- rows

small = st.integers(0, 2)
instants = st.builds(
    lambda place, half: BEGIN + place * 5 * SECOND + half * SECOND // 2, st.integers(0, 40), st.sampled_from((0, 0, 1))
)
numbers = st.none() | st.integers(-3, 5)
fractions = st.none() | st.integers(-8, 8).map(lambda n: n / 4)


def _rows(values: st.SearchStrategy[dict[str, Any]], weights: Sequence[int] = (1,)) -> st.SearchStrategy[Any]:
    row = st.builds(
        lambda at, value, weight: Change(at, at, value, weight), instants, values, st.sampled_from(tuple(weights))
    )
    return st.lists(row, max_size=10).map(tuple)


events = _rows(
    st.fixed_dictionaries(
        {
            "k": small,
            "g": st.sampled_from("ab"),
            "x": numbers,
            "f": fractions,
            "l": st.lists(small, max_size=2),
        }
    )
)
users = _rows(st.fixed_dictionaries({"id": small, "c": small, "u": numbers}))
items = _rows(
    st.fixed_dictionaries({"no": small, "of": st.sampled_from("ab"), "p": small, "q": fractions}), weights=(1, 1, -1)
)

# ---- conditions and values


def _named(twin: Twin, *dtypes: DType, keys: bool = True) -> list[str]:
    columns = [*(twin.schema.keys if keys else ()), *twin.schema.values]
    return [name for name, dtype in columns if dtype in dtypes]


def _is_odd(name: str) -> Step:
    return Step(f"{name} % 2 == 1", col(name) % 2 == 1, lambda row: row[name] % 2 == 1)


def _is_some(name: str) -> Step:
    return Step(
        f"({name} or 0) >= 1", col(name).fillnull(0) >= 1, lambda row: (0 if row[name] is None else row[name]) >= 1
    )


def _is_a(name: str) -> Step:
    return Step(f"{name} == 'a'", col(name) == "a", lambda row: row[name] == "a")


def _is_positive(name: str) -> Step:
    def positive(df: pd.DataFrame) -> Any:
        return df[name].fillna(0) > 0

    return Step(f"lambda: {name} > 0", positive, lambda row: (0 if row[name] is None else row[name]) > 0)


def conditions(twin: Twin) -> list[Step]:
    """Return conditions on rows."""
    return [
        *map(_is_odd, _named(twin, Int())),
        *map(_is_some, _named(twin, OPTIONAL_INT)),
        *map(_is_a, _named(twin, Str())),
        *map(_is_positive, _named(twin, Int(), OPTIONAL_INT, OPTIONAL_FLOAT)),
    ]


def _doubled(name: str) -> tuple[Any, Step]:
    return int, Step(f"{name} * 2 + 1", col(name) * 2 + 1, lambda row: row[name] * 2 + 1)


def _more(name: str) -> tuple[Any, Step]:
    step = Step(f"{name} + 1", col(name) + 1, lambda row: None if row[name] is None else row[name] + 1)
    return ANNOTATIONS[OPTIONAL_INT], step


def _filled(name: str) -> tuple[Any, Step]:
    return int, Step(f"{name} or 7", col(name).fillnull(7), lambda row: 7 if row[name] is None else row[name])


def _negative(name: str) -> tuple[Any, Step]:
    def negative(df: pd.DataFrame) -> Any:
        return -df[name]

    return int, Step(f"lambda: -{name}", negative, lambda row: -row[name])


def assignments(twin: Twin) -> list[tuple[Any, Step]]:
    """Return values made of rows, with their types."""
    return [
        *map(_doubled, _named(twin, Int())),
        *map(_negative, _named(twin, Int())),
        *map(_more, _named(twin, OPTIONAL_INT)),
        *map(_filled, _named(twin, OPTIONAL_INT)),
    ]


# ---- operators

Operation = Callable[[Draw, Twin, "Known"], Twin | None]


class Known:
    """The datasets pipelines can read so far."""

    def __init__(self, twins: dict[str, Twin]) -> None:
        self.twins = twins

    @property
    def tables(self) -> list[Twin]:
        """Those that can be joined."""
        return [twin for twin in self.twins.values() if twin.keys]


def _filter(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    found = conditions(twin)
    return twin.filter(draw(st.sampled_from(found))) if found else None


def _fresh(twin: Twin, *wanted: str) -> str:
    return next(name for name in (*wanted, *(f"n{i}" for i in range(99))) if name not in twin.schema.names)


def _assign(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    found = assignments(twin)
    if not found:
        return None
    dtype, step = draw(st.sampled_from(found))
    names = [_fresh(twin), *_named(twin, Int(), OPTIONAL_INT, keys=False)]
    return twin.assign(draw(st.sampled_from(names)), dtype, step)


def _transform(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    names = _named(twin, Int(), keys=False)
    if not names:
        return None
    name, wide = draw(st.sampled_from(names)), draw(st.booleans())
    fresh = _fresh(twin, "w")

    def run(df: pd.DataFrame) -> pd.DataFrame:
        return df.assign(**{fresh if wide else name: df[name] + 10})

    step = Step(
        f"{fresh if wide else name}={name} + 10", run, lambda row: {**row, (fresh if wide else name): row[name] + 10}
    )
    return twin.transform({**twin.node.schema(), fresh: int} if wide else None, step)


def _select(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    values = twin.schema.value_names
    gone = draw(st.sets(st.sampled_from(values), min_size=1)) if len(values) > 1 else set()
    if not gone or len(gone) == len(values):
        return None
    if draw(st.booleans()):
        return twin.drop(sorted(gone))
    return twin.select([*twin.keys, *(name for name in values if name not in gone)])


def _rename(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    name = draw(st.sampled_from(twin.schema.names))
    return twin.rename({name: _fresh(twin, f"{name}2")})


def _dropnull(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    names = [name for name, dtype in twin.schema.values if dtype.is_optional]
    return twin.dropnull(sorted(draw(st.sets(st.sampled_from(names), min_size=1)))) if names else None


def _explode(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    names = [name for name, dtype in twin.schema.values if isinstance(dtype.base, List)]
    return twin.explode([draw(st.sampled_from(names))]) if names and not twin.keys else None


def _union(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    if twin.keys:
        return None
    same = [each for each in known.twins.values() if not each.keys and each.schema.dtypes == twin.schema.dtypes]
    other = draw(st.sampled_from([twin, *same]))
    return twin.union(_filter(draw, other, known) or other)


def _changelog(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    return twin.changelog(_fresh(twin, "gone"), marks_deletes=draw(st.booleans())) if twin.keys else None


def _keys(draw: Draw, twin: Twin, *, most: int = 2) -> list[str] | None:
    names = _named(twin, Int(), Str())
    return draw(st.lists(st.sampled_from(names), min_size=1, max_size=most, unique=True)) if names else None


def _choice(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    keys = None if twin.keys else _keys(draw, twin)
    if not keys:
        return None
    kind = draw(st.sampled_from(("latest", "first", "dedup")))
    if kind == "dedup":
        return twin.dedup(keys, draw(st.sampled_from((None, Tumbling("30s"), Session("15s")))))
    return twin.latest(*keys) if kind == "latest" else twin.first(*keys)


def _join(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    rights = [each for each in known.tables if _left_on(twin, each, None) and _kept(twin, each)]
    if not rights:
        return None
    right = draw(st.sampled_from(rights))
    within = draw(st.sampled_from(((None, 0), (20, 0), (60, 10), (None, 10)))) if not twin.keys else (None, 0)
    fields = draw(st.lists(st.sampled_from(_kept(twin, right)), min_size=1, unique=True))
    left_on = _left_on(twin, right, draw)
    assert left_on is not None
    return twin.join(right, left_on, fields, how=draw(st.sampled_from(("left", "inner"))), within=within)


def _left_on(twin: Twin, right: Twin, draw: Draw | None) -> list[str] | None:
    """Return left columns for the right keys, if there are."""
    fitting = [_named(twin, dtype) for _, dtype in right.schema.keys]
    if not all(fitting):
        return None
    return [draw(st.sampled_from(names)) if draw else names[0] for names in fitting]


def _kept(twin: Twin, right: Twin) -> list[str]:
    """Return the right columns that can be taken over."""
    return [name for name in (*right.schema.value_names, right.schema.timestamp) if name not in twin.schema.names]


# ---- aggregates


def _over(draw: Draw, twin: Twin, windows: Sequence[Any], *, asked: bool) -> list[Any]:
    ints, optionals, floats = _named(twin, Int()), _named(twin, OPTIONAL_INT), _named(twin, OPTIONAL_FLOAT)
    menu: list[tuple[type, dict[str, Any]]] = [(Count, {})]
    for of in (*ints, *optionals, *floats):
        menu += [
            (Sum, {"of": of}),
            (Average, {"of": of}),
            (Max, {"of": of}),
            (Min, {"of": of}),
            (Stddev, {"of": of}),
            (Quantile, {"of": of, "p": 0.5, "approx": True}),
            (LastK, {"of": of, "limit": 2, "dedup": draw(st.booleans())}),
            (FirstK, {"of": of, "limit": 2, "dedup": draw(st.booleans()), "dropnull": False}),
        ]
        menu += [(ExpDecaySum, {"of": of, "half_life": "30s"})] if asked else []
    for of in (*ints, *optionals, *_named(twin, Str())):
        menu += [(Count, {"of": of, "unique": True, "approx": True}), (Distinct, {"of": of, "unordered": True})]
    for of in (*optionals, *floats):
        menu += [
            (Count, {"of": of, "dropnull": True}),
            (LastK, {"of": of, "limit": 3, "dedup": False, "dropnull": True}),
        ]
    chosen = draw(st.lists(st.sampled_from(menu), min_size=1, max_size=3))
    prefix = next(each for each in "abcdefghij" if f"{each}0" not in twin.schema.names)
    return [
        kind(**arguments, window=draw(st.sampled_from(windows)), into_field=f"{prefix}{number}")
        for number, (kind, arguments) in enumerate(chosen)
    ]


CONTINUOUS = (Continuous("30s"), Continuous("90s"), Continuous("forever"))
DISCRETE = (Tumbling("30s"), Tumbling("1m"), Hopping("90s", "30s"), Hopping("forever", "30s"))
BACK = (Tumbling("30s", lookback="20s"), Hopping("1m", "30s", lookback="20s"))
CUMULATIVE = (Hopping("forever", "30s"), Hopping("forever", "10s"))
BY_WINDOW = (Tumbling("30s"), Hopping("1m", "20s"), Session("15s"), Session("40s"))


def _asked(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    keys = _keys(draw, twin)
    return twin.aggregate(keys, _over(draw, twin, CONTINUOUS, asked=True)) if keys else None


def _aggregate(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    keys = _keys(draw, twin)
    if not keys:
        return None
    windows = draw(st.sampled_from((CUMULATIVE,) if twin.keys else (DISCRETE, BACK)))
    return twin.aggregate(keys, _over(draw, twin, windows, asked=False))


def _by_window(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    keys = None if twin.keys else _keys(draw, twin)
    if not keys or "window" in twin.schema.names:
        return None
    window = draw(st.sampled_from(BY_WINDOW))
    return twin.aggregate(keys, _over(draw, twin, (None,), asked=False), window=window)


ROW_WISE: tuple[Operation, ...] = (
    _filter,
    _assign,
    _transform,
    _select,
    _rename,
    _dropnull,
    _explode,
    _union,
    _changelog,
)
STATEFUL: tuple[Operation, ...] = (_choice, _choice, _join, _join, _join, _aggregate, _by_window, _changelog)


@st.composite
def programs(draw: Draw) -> Program:
    """Return a program with up to four sources and up to three pipelines."""
    sources = {
        "E": Source(EVENTS, draw(events)),
        "F": Source(EVENTS, draw(events)),
        "U": Source(USERS, draw(users)),
        "I": Source(ITEMS, draw(items), deletes=True),
    }
    known = Known(
        {name: Twin.of(name, each.schema, appends=not each.schema.is_keyed) for name, each in sources.items()}
    )
    derived: dict[str, Twin] = {}
    for number in range(draw(st.integers(1, 3))):
        twin = _chain(draw, known)
        name = f"D{number}"
        derived[name] = twin
        operator = twin.node.operator
        if not operator.is_terminal:
            known.twins[name] = Twin.of(name, twin.schema, appends=not twin.keys and operator.inserts_only)
    read = _read(derived)
    used = {name: each for name, each in sources.items() if name in read}
    return Program.numbered(used, derived, draw(st.sampled_from((0, 20, 1000))))


def _chain(draw: Draw, known: Known) -> Twin:
    twin = known.twins[draw(st.sampled_from(sorted(known.twins, reverse=True)))]
    for _ in range(draw(st.integers(1, 4))):
        operations = ROW_WISE if draw(st.integers(0, 2)) == 0 else STATEFUL
        twin = draw(st.sampled_from(operations))(draw, twin, known) or twin
    return (_asked(draw, twin, known) or twin) if draw(st.integers(0, 2)) == 0 else twin


def _read(derived: dict[str, Twin]) -> set[str]:
    from umbel.plan.definitions import leaves

    return {leaf.dataset for twin in derived.values() for leaf in leaves(twin.node.operator)}
