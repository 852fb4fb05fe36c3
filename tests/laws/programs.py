"""Random programs: pipelines of any operators over changes of any kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from tests.laws import menus
from tests.laws.expressions import assignments, conditions, named
from tests.laws.sources import (
    BOOL,
    CENTS,
    DATE,
    DATETIME,
    FLOAT,
    GRADE,
    INT,
    INTS,
    OPTIONAL_INT,
    POINT,
    SHIFTS,
    STR,
    WINDOW,
    all_sources,
    committed,
    permuted,
    shifted,
)
from tests.laws.twins import Program, Step, Twin
from tests.reference import SECOND
from umbel.types.dtypes import List
from umbel.types.windows import Session, Tumbling

Draw = Callable[[st.SearchStrategy[Any]], Any]

# ---- operators

KEYS = (INT, STR, CENTS, BOOL, POINT, DATE, DATETIME, WINDOW, GRADE, INTS, FLOAT)
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


def _fresh(twin: Twin, *preferred: str) -> str:
    return next(name for name in (*preferred, *(f"n{i}" for i in range(99))) if name not in twin.schema.names)


def _assign(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    found = assignments(twin)
    if not found:
        return None
    dtype, step = draw(st.sampled_from(found))
    names = [_fresh(twin), *named(twin, INT, OPTIONAL_INT, keys=False)]
    return twin.assign(draw(st.sampled_from(names)), dtype, step)


def _transform(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    names = named(twin, INT, keys=False)
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


def _swap(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    values = [name for name in twin.schema.value_names if twin.schema.dtypes[name] != WINDOW]
    return twin.swapped(*draw(st.permutations(values))[:2]) if len(values) > 1 else None


def _move(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    return None if twin.keys else twin.moved(draw(st.sampled_from((-30, 7, 100))) * SECOND)


def _select(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    values = twin.schema.value_names
    gone = draw(st.sets(st.sampled_from(values), min_size=1)) if len(values) > 1 else set()
    if not gone or len(gone) == len(values):
        return None
    if draw(st.booleans()):
        return twin.drop(draw(st.permutations(sorted(gone))))
    return twin.select(draw(st.permutations([*twin.keys, *(name for name in values if name not in gone)])))


def _rename(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    name = draw(st.sampled_from(twin.schema.names))
    return twin.rename({name: _fresh(twin, f"{name}2")})


def _dropnull(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    names = [name for name, dtype in twin.schema.values if dtype.is_optional]
    return twin.dropnull(sorted(draw(st.sets(st.sampled_from(names), min_size=1)))) if names else None


def _explode(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    names = [name for name, dtype in twin.schema.values if isinstance(dtype.base, List)]
    if not names or twin.keys:
        return None
    if {"l", "m"} <= {*names} and draw(st.booleans()):
        return twin.explode(["l", "m"])
    return twin.explode([draw(st.sampled_from(names))])


def _union(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    if twin.keys:
        return None
    same = [each for each in known.twins.values() if not each.keys and each.schema.dtypes == twin.schema.dtypes]
    other = draw(st.sampled_from([twin, *same]))
    return twin.union(_filter(draw, other, known) or other)


def _changelog(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    return twin.changelog(_fresh(twin, "gone"), marks_deletes=draw(st.booleans())) if twin.keys else None


def _has_exact_floats(twin: Twin) -> bool:
    """Return False if floats may differ from the reference's in their last digits, so that they name other groups."""
    return not any(name in twin.text for name in ("Stddev", "Average"))


def _keys(draw: Draw, twin: Twin, *, most: int = 2) -> list[str] | None:
    names = named(twin, *(KEYS if _has_exact_floats(twin) else (each for each in KEYS if each != FLOAT)))
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
    rights = [each for each in known.tables if _left_on(twin, each, None) and _carried(twin, each)]
    if not rights:
        return None
    right = draw(st.sampled_from(rights))
    within = draw(st.sampled_from(((None, 0), (20, 0), (60, 10), (None, 10)))) if not twin.keys else (None, 0)
    fields = draw(st.lists(st.sampled_from(_carried(twin, right)), min_size=1, unique=True))
    left_on = _left_on(twin, right, draw)
    assert left_on is not None
    return twin.join(right, left_on, fields, how=draw(st.sampled_from(("left", "inner"))), within=within)


def _join_twice(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    once = _join(draw, twin, known)
    if once is None:
        return None
    for name in [name for name in once.schema.value_names if name not in twin.schema.names]:
        once = once.rename({name: _fresh(once, f"{name}_{len(twin.schema.names)}")})
    return _join(draw, once, known)


def _left_on(twin: Twin, right: Twin, draw: Draw | None) -> list[str] | None:
    """Return left columns for the right keys, if there are."""
    fitting = [named(twin, dtype) for _, dtype in right.schema.keys]
    if not all(fitting):
        return None
    return [draw(st.sampled_from(names)) if draw else names[0] for names in fitting]


def _carried(twin: Twin, right: Twin) -> list[str]:
    """Return the right columns that can be taken over."""
    return [name for name in (*right.schema.value_names, right.schema.timestamp) if name not in twin.schema.names]


# ---- aggregates


def _along(draw: Draw, twin: Twin) -> str | None:
    names = named(twin, DATETIME, keys=False)
    return draw(st.sampled_from(names)) if names and draw(st.booleans()) else None


def _queried(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    keys = _keys(draw, twin)
    if not keys:
        return None
    along = _along(draw, twin)
    chosen = menus.aggregates(draw, twin, draw(st.sampled_from((menus.CONTINUOUS, menus.COLLAPSING))), queried=True)
    return twin.aggregate(keys, chosen, along=along)


def _aggregate(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    keys = _keys(draw, twin)
    if not keys:
        return None
    emit = draw(st.sampled_from(("eager", "eager", "final")))
    along = _along(draw, twin) if emit == "eager" else None
    cumulative = twin.keys and along is None
    windows = draw(st.sampled_from((menus.CUMULATIVE,) if cumulative else (menus.DISCRETE, menus.BACK)))
    if emit == "final" and draw(st.booleans()):
        windows = menus.CONTINUOUS
    return twin.aggregate(keys, menus.aggregates(draw, twin, windows, queried=False), along=along, emit=emit)


def _by_window(draw: Draw, twin: Twin, known: Known) -> Twin | None:
    keys = None if twin.keys else _keys(draw, twin)
    if not keys or "window" in twin.schema.names:
        return None
    window = draw(st.sampled_from(menus.BY_WINDOW))
    emit = draw(st.sampled_from(("eager", "eager", "final")))
    return twin.aggregate(keys, menus.aggregates(draw, twin, (None,), queried=False), window=window, emit=emit)


ROW_WISE: tuple[Operation, ...] = (
    _filter,
    _assign,
    _swap,
    _transform,
    _move,
    _select,
    _rename,
    _dropnull,
    _explode,
    _union,
    _changelog,
)
STATEFUL: tuple[Operation, ...] = (_choice, _choice, _join, _join, _join_twice, _aggregate, _by_window, _changelog)


@st.composite
def programs(draw: Draw) -> Program:
    """Return a program with a source of each kind that it reads and up to three pipelines."""
    sources = all_sources(draw)
    known = Known(
        {name: Twin.of(name, each.schema, appends=not each.schema.is_keyed) for name, each in sources.items()}
    )
    derived: dict[str, Twin] = {}
    for number in range(draw(st.sampled_from((1, 1, 2, 3)))):
        twin = _chain(draw, known)
        name = f"D{number}"
        derived[name] = replace(twin, declared=permuted(draw, twin.schema))
        operator = twin.node.operator
        if not operator.is_terminal:
            appends = not twin.keys and operator.inserts_only
            known.twins[name] = Twin.of(name, derived[name].dataset, appends=appends)
    read = _read(derived)
    used = {name: each for name, each in sources.items() if name in read}
    shift = draw(st.sampled_from(SHIFTS))
    disorder = draw(st.sampled_from((0, 20, 1000)))
    moved = {name: shifted(committed(each, disorder), shift) for name, each in used.items()}
    return Program.numbered(moved, derived, disorder, shift)


def _chain(draw: Draw, known: Known) -> Twin:
    twin = known.twins[draw(st.sampled_from(list(known.twins)))]
    for _ in range(draw(st.integers(1, 6))):
        operations = ROW_WISE if draw(st.integers(0, 2)) == 0 else STATEFUL
        twin = draw(st.sampled_from(operations))(draw, twin, known) or twin
    return (_queried(draw, twin, known) or twin) if draw(st.integers(0, 2)) == 0 else twin


def _read(derived: dict[str, Twin]) -> set[str]:
    from umbel.definitions.records import leaves

    return {leaf.dataset for twin in derived.values() for leaf in leaves(twin.node.operator)}
