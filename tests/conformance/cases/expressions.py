"""Expressions in pipelines: every function at least once, with what plain Python makes of the same row."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Optional

from tests.conformance.case import Case, Log, Table, instant
from umbel.datasets import dataset, pipeline
from umbel.dtypes import struct
from umbel.expr import col, from_epoch, lit, make_struct, repeat, var, when
from umbel.expr import datetime as moment
from umbel.lib import inputs

__owner__ = "conformance@umbel.dev"

T = instant("2024-02-29T13:45:59.123456")


def limited(value: Any, steps: int) -> Any:
    """A score with limits in each of some steps, whose parts are used several times."""
    for _ in range(steps):
        value = value * 2 - 5
        value = when(value > 60).then(60).when(value < -5).then(-5).otherwise(value)
    return value


@struct
class Place:
    x: int
    y: Optional[int]


@dataset
class Facts:
    a: int
    n: Optional[int]
    f: float
    s: str
    j: str
    b: bool
    items: list[int]
    flags: list[bool]
    d: dict[str, int]
    p: Place
    e: int
    t: datetime


ROW = {
    "a": 7, "n": None, "f": -2.5, "s": "Hello", "j": '{"k": "v"}', "b": True, "items": [3, 1, 2], "flags": [True, False],
    "d": {"k": 5}, "p": Place(x=1, y=None), "e": 1709214359, "t": T,
}  # fmt: skip
a, n, f, s, b, items, t = (col(name) for name in ("a", "n", "f", "s", "b", "items", "t"))

VALUES: dict[str, tuple[Any, Any, Any]] = {
    "add": (a + 1, int, 8), "sub": (a - 1, int, 6), "mul": (a * 2, int, 14), "truediv": (a / 2, float, 3.5),
    "floordiv": (a // 2, int, 3), "mod": (a % 4, int, 3), "neg": (-a, int, -7),
    "eq": (a == 7, bool, True), "ne": (a != 7, bool, False), "gt": (a > 7, bool, False), "ge": (a >= 7, bool, True),
    "lt": (a < 7, bool, False), "le": (a <= 7, bool, True),
    "both": (b & (a > 0), bool, True), "either": (b | (a < 0), bool, True), "invert": (~b, bool, False),
    "isnull": (n.isnull(), bool, True), "fillnull": (n.fillnull(4), int, 4),
    "when": (when(a > 5).then("big").otherwise("small"), str, "big"),
    "abs": (f.abs(), float, 2.5), "ceil": (f.ceil(), int, -2), "floor": (f.floor(), int, -3),
    "round": (f.round(0), int, -3), "sqrt": (a.num.sqrt(), float, math.sqrt(7)), "pow": (a.num.pow(2), int, 49),
    "log": (a.num.log(10.0), float, math.log10(7)), "sin": (f.num.sin(), float, math.sin(-2.5)),
    "cos": (f.num.cos(), float, math.cos(-2.5)), "tan": (f.num.tan(), float, math.tan(-2.5)),
    "arcsin": ((f / 10).num.arcsin(), float, math.asin(-0.25)), "arccos": ((f / 10).num.arccos(), float, math.acos(-0.25)),
    "arctan": (f.num.arctan(), float, math.atan(-2.5)), "to_string": (a.num.to_string(), str, "7"),
    "is_nan": (f.num.is_nan(), bool, False), "is_infinite": (f.num.is_infinite(), bool, False),
    "lower": (s.str.lower(), str, "hello"), "upper": (s.str.upper(), str, "HELLO"), "length": (s.str.len(), int, 5),
    "concat": (s.str.concat("!"), str, "Hello!"), "contains": (s.str.contains("ell"), bool, True),
    "startswith": (s.str.startswith("He"), bool, True), "endswith": (s.str.endswith("He"), bool, False),
    "split": (s.str.split("l"), list[str], ["He", "", "o"]),
    "json_extract": (col("j").str.json_extract("$.k"), Optional[str], "v"),
    "parse": (lit("[1, 2]").str.parse(list[int]), list[int], [1, 2]),
    "strptime": (lit("2024-02-29").str.strptime("%Y-%m-%d"), datetime, instant("2024-02-29")),
    "year": (t.dt.year, int, 2024), "month": (t.dt.month, int, 2), "week": (t.dt.week, int, 9), "day": (t.dt.day, int, 29),
    "hour": (t.dt.hour, int, 13), "minute": (t.dt.minute, int, 45), "second": (t.dt.second, int, 59),
    "millisecond": (t.dt.millisecond, int, 123), "microsecond": (t.dt.microsecond, int, 123456),
    "parts": (t.dt.parts("hour", "America/New_York"), int, 8),
    "with_tz": (t.dt.with_tz("America/New_York").dt.hour, int, 8),
    "since": (t.dt.since(moment(2024, 2, 28), unit="day"), int, 1), "since_epoch": (t.dt.since_epoch(), int, 1709214359),
    "strftime": (t.dt.strftime("%Y/%m"), str, "2024/02"),
    "list_len": (items.list.len(), int, 3), "list_sum": (items.list.sum(), int, 6),
    "list_min": (items.list.min(), Optional[int], 1),
    "list_max": (items.list.max(), Optional[int], 3), "list_mean": (items.list.mean(), Optional[float], 2.0),
    "list_all": (col("flags").list.all(), bool, False), "list_any": (col("flags").list.any(), bool, True),
    "list_contains": (items.list.contains(2), bool, True), "list_at": (items.list.at(-1), Optional[int], 2),
    "hasnull": (items.list.hasnull(), bool, False),
    "list_map": (items.list.map("v", var("v") * 2), list[int], [6, 2, 4]),
    "list_filter": (items.list.filter("v", var("v") > 1), list[int], [3, 2]),
    "dict_get": (col("d").dict.get("k"), Optional[int], 5), "dict_len": (col("d").dict.len(), int, 1),
    "dict_contains": (col("d").dict.contains("z"), bool, False),
    "struct_get": (col("p").struct.get("x"), int, 1),
    "from_epoch": (from_epoch(col("e"), unit="second"), datetime, instant("2024-02-29T13:45:59")),
    "repeat": (repeat(a, 2), list[int], [7, 7]),
    "made": (make_struct({"x": a, "y": n}, Place).struct.get("x"), int, 7),
    "limited": (limited(a, 5), int, 60),
    "zipped": (Place.zip(x=items, y=items).list.len(), int, 3),
}  # fmt: skip


def derived() -> Any:
    """A dataset with the value of every expression."""

    def body(cls, facts):
        return facts.assign(**{f"v_{name}": expr.astype(kind) for name, (expr, kind, _) in VALUES.items()}).select(
            *(f"v_{name}" for name in VALUES)
        )

    hints = {f"v_{name}": kind for name, (_, kind, _) in VALUES.items()} | {"t": datetime}
    members = {"__annotations__": hints, "t": timestamp(), "made": pipeline(inputs(Facts)(body))}
    return dataset(type("Derived", (), {**members, "__module__": __name__}))


def timestamp() -> Any:
    from umbel.datasets import field

    return field(timestamp=True)


Derived = derived()
COLUMNS = (*(f"v_{name}" for name in VALUES), "t")
EXPECTED = [(*(value for _, _, value in VALUES.values()), T)]
CASES = [
    Case("every function of expressions", [Facts, Derived], [Log("Facts", [ROW]), Table("Derived", COLUMNS, EXPECTED)])
]
