"""Random conditions and values of rows: as expressions, as functions of frames, and in plain Python."""

from __future__ import annotations

from decimal import Decimal as Fixed
from typing import Any

import pandas as pd

from tests.laws.sources import (
    ANNOTATIONS,
    BOOL,
    CENTS,
    INT,
    OPTIONAL_CENTS,
    OPTIONAL_DATE,
    OPTIONAL_FLOAT,
    OPTIONAL_INT,
    OPTIONAL_STR,
    POINT,
    STR,
    Point,
)
from tests.laws.twins import Step, Twin
from umbel.expr import col, lit
from umbel.types.dtypes import DType


def named(twin: Twin, *dtypes: DType, keys: bool = True) -> list[str]:
    """Return the columns of some types."""
    columns = [*(twin.schema.keys if keys else ()), *twin.schema.values]
    return [name for name, dtype in columns if dtype in dtypes]


# ---- conditions


def _is_odd(name: str) -> Step:
    return Step(f"{name} % 2 == 1", col(name) % 2 == 1, lambda row: row[name] % 2 == 1)


def _is_some(name: str) -> Step:
    return Step(
        f"({name} or 0) >= 1", col(name).fillnull(0) >= 1, lambda row: (0 if row[name] is None else row[name]) >= 1
    )


def _is_a(name: str) -> Step:
    return Step(f"{name} == 'a'", col(name) == "a", lambda row: row[name] == "a")


def _is_set(name: str) -> Step:
    return Step(name, col(name), lambda row: row[name])


def _is_there(name: str) -> Step:
    return Step(f"{name} is not None", ~col(name).isnull(), lambda row: row[name] is not None)


def _is_one(name: str) -> Step:
    return Step(f"{name}.a == 1", col(name).struct.get("a") == 1, lambda row: row[name][0] == 1)


def _is_positive(name: str) -> Step:
    def positive(df: pd.DataFrame) -> Any:
        return df[name].fillna(0) > 0

    return Step(f"lambda: {name} > 0", positive, lambda row: (0 if row[name] is None else row[name]) > 0)


def _is_plus(name: str) -> Step:
    def plus(df: pd.DataFrame) -> Any:
        return df[name].map(lambda each: each > 0).astype(bool)

    return Step(f"lambda: decimal {name} > 0", plus, lambda row: row[name] > 0)


def _is_unnamed(name: str) -> Step:
    def unnamed(df: pd.DataFrame) -> Any:
        return df[name].map(lambda each: pd.isna(each.b)).astype(bool)

    return Step(f"lambda: {name}.b is None", unnamed, lambda row: row[name][1] is None)


def conditions(twin: Twin) -> list[Step]:
    """Return conditions on rows."""
    return [
        *map(_is_odd, named(twin, INT)),
        *map(_is_some, named(twin, OPTIONAL_INT)),
        *map(_is_a, named(twin, STR)),
        *map(_is_positive, named(twin, INT, OPTIONAL_INT, OPTIONAL_FLOAT)),
        *map(_is_set, named(twin, BOOL)),
        *map(_is_there, named(twin, OPTIONAL_CENTS, OPTIONAL_DATE, OPTIONAL_STR)),
        *map(_is_plus, named(twin, CENTS)),
        *map(_is_one, named(twin, POINT)),
        *map(_is_unnamed, named(twin, POINT)),
    ]


# ---- values


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


def _as_cents(name: str) -> tuple[Any, Step]:
    return ANNOTATIONS[CENTS], Step(f"Decimal({name})", col(name), lambda row: Fixed(row[name]))


def _paid(name: str) -> tuple[Any, Step]:
    value = Fixed("1.25")
    step = Step(
        f"{name} or 1.25",
        col(name).fillnull(lit("1.25", ANNOTATIONS[CENTS])),
        lambda row: value if row[name] is None else row[name],
    )
    return ANNOTATIONS[CENTS], step


def _owed(name: str) -> tuple[Any, Step]:
    def owed(df: pd.DataFrame) -> Any:
        return -df[name]

    return ANNOTATIONS[CENTS], Step(f"lambda: decimal -{name}", owed, lambda row: -row[name])


def _first_of(name: str) -> tuple[Any, Step]:
    return int, Step(f"{name}.a", col(name).struct.get("a"), lambda row: row[name][0])


def _second_of(name: str) -> tuple[Any, Step]:
    return ANNOTATIONS[OPTIONAL_STR], Step(f"{name}.b", col(name).struct.get("b"), lambda row: row[name][1])


def _moved(name: str) -> tuple[Any, Step]:
    def moved(df: pd.DataFrame) -> Any:
        return df[name].map(lambda each: Point(1 - each.a, "c"))

    return Point, Step(f"lambda: moved {name}", moved, lambda row: (1 - row[name][0], "c"))


def _placed(number: str, text: str) -> tuple[Any, Step]:
    step = Step(f"Point({number}, {text})", Point.expr(a=col(number), b=col(text)), lambda r: (r[number], r[text]))
    return Point, step


def assignments(twin: Twin) -> list[tuple[Any, Step]]:
    """Return values made of rows, with their types."""
    return [
        *map(_doubled, named(twin, INT)),
        *map(_negative, named(twin, INT)),
        *map(_as_cents, named(twin, INT)),
        *map(_more, named(twin, OPTIONAL_INT)),
        *map(_filled, named(twin, OPTIONAL_INT)),
        *map(_paid, named(twin, OPTIONAL_CENTS)),
        *map(_owed, named(twin, CENTS)),
        *map(_first_of, named(twin, POINT)),
        *map(_second_of, named(twin, POINT)),
        *map(_moved, named(twin, POINT)),
        *(_placed(number, text) for number in named(twin, INT)[:1] for text in named(twin, STR)[:1]),
    ]
