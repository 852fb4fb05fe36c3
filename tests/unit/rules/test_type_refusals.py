"""Types that cannot be: misused hints, structs, windows, durations (api §1)."""

from datetime import datetime, timedelta, timezone
from decimal import Decimal as Dec
from typing import Any, Dict, List, Optional, Union

import numpy as np
import pytest

from tests.unit.rules.refusals import refused
from umbel.datasets import dataset
from umbel.dtypes import (
    Continuous,
    Decimal,
    Embedding,
    Hopping,
    Session,
    Tumbling,
    Window,
    between,
    oneof,
    regex,
    struct,
)
from umbel.lib import meta


@struct
class Point:
    x: int
    y: Optional[float]


@struct
class Line:
    name: str
    points: List[Point]


def of(T: Any) -> None:
    @dataset
    class D:
        v: T
        t: datetime


def test_misused_hints() -> None:
    with refused(TypeError, "Embedding", "is a type hint, use []"):
        Embedding(3)
    with refused(TypeError, "Decimal", "is a type hint, use []"):
        Decimal(3)
    with refused(TypeError, "Decimal", "int"):
        Decimal[0]
    with refused(TypeError, "29", "28"):
        Decimal[29]
    with pytest.raises(TypeError):
        Decimal["x"]
    with pytest.raises(TypeError):
        Embedding["x"]


BAD = [
    (oneof(float, [1.0]), TypeError, ["float", "int", "str"]),
    (oneof(int, ["a"]), TypeError, ["int", "str"]),
    (oneof(str, ["a", 1]), TypeError, ["int", "str"]),
    (between(str, "a", "b"), TypeError, ["str", "int", "float"]),
    (between(int, 1.5, 3), TypeError, ["int", "float"]),
    (between(int, 1, 3.0), TypeError, ["int", "float"]),
    (regex(5), TypeError, ["int", "str"]),
    (Dict[int, str], ValueError, ["int", "str"]),
    (Union[int, str], TypeError, ["int", "str"]),
    (list, TypeError, ["list"]),
    (dict, TypeError, ["dict"]),
    (object, TypeError, ["object"]),
    (Dec, TypeError, ["Decimal"]),
    (List[Dict[int, str]], ValueError, ["int"]),
    (Optional[oneof(float, [1.0])], TypeError, ["float"]),
]


@pytest.mark.parametrize(("T", "kind", "words"), BAD, ids=lambda each: str(each)[:40])
def test_bad_types(T: Any, kind: type[Exception], words: list[str]) -> None:
    with refused(kind, "D", "v", *words):
        of(T)


def test_struct_definitions() -> None:
    with refused(TypeError, "WithMethod", "area"):

        @struct
        class WithMethod:
            x: int

            def area(self) -> int:
                return 1

    with refused(ValueError, "WithDefault", "x", "5"):

        @struct
        class WithDefault:
            x: int = 5

    with refused(ValueError, "Described", "meta"):

        @meta(owner="a@b.co")
        @struct
        class Described:
            x: int

    with refused(ValueError, "Described2", "meta"):

        @struct
        @meta(owner="a@b.co")
        class Described2:
            x: int


def test_fields_of_structs() -> None:
    class Plain:
        x: int

    with refused(TypeError, "Holder", "p", "Plain"):

        @struct
        class Holder:
            p: Plain

    with refused(TypeError, "Forward", "p"):

        @struct
        class Forward:
            p: "NotYet"  # noqa: F821

    with refused(TypeError, "ForwardList", "p"):

        @struct
        class ForwardList:
            p: List["NotYet"]  # noqa: F821


def test_structs_do_not_mix() -> None:
    with refused(TypeError, "Point", "Line", "mixed", "Mix"):

        @dataset
        class Mix:
            mixed: Union[Point, Line]
            t: datetime

    with refused(TypeError, "Point", "Line", "mixed", "Mix2"):

        @dataset
        class Mix2:
            mixed: List[Union[Point, Line]]
            t: datetime


def test_windows() -> None:
    assert Continuous("forever") == Continuous("forever")
    assert Continuous("1d") == Continuous("24h")
    assert Continuous("1d") != Continuous("2d")
    assert Continuous(duration="1d").duration_total_seconds() == 86400
    assert Tumbling(duration="1h", lookback="1d").lookback_total_seconds() == 86400
    assert Tumbling("1h").lookback_total_seconds() == 0
    assert Tumbling("1h").duration_total_seconds() == 3600
    assert Tumbling("1h").stride_total_seconds() == 3600
    hopping = Hopping(duration="1d", stride="1h", lookback="2h")
    assert (hopping.duration_total_seconds(), hopping.stride_total_seconds(), hopping.lookback_total_seconds()) == (
        86400, 3600, 7200,
    )  # fmt: skip
    assert Hopping("forever", "1h").stride_total_seconds() == 3600
    assert Session(gap="60m").gap_total_seconds() == 3600
    assert Session("60m") == Session("1h")
    assert Tumbling("1h") != Session("1h")
    begin, end = datetime(2024, 1, 1, tzinfo=timezone.utc), datetime(2024, 1, 2, tzinfo=timezone.utc)
    assert Window(begin=begin, end=end) == Window(begin, end)
    assert Window(begin=begin, end=end).begin == begin


def test_bad_windows() -> None:
    with refused(ValueError, "forever"):
        Tumbling("forever")
    with refused(ValueError, "stride", "duration"):
        Hopping("1h", "2h")
    with refused(ValueError, "duration", "1x"):
        Tumbling("1x")
    with refused(ValueError, "stride", "1x"):
        Hopping("1d", "1x")
    with refused(ValueError, "stride"):
        Hopping("1d", "forever")
    with refused(ValueError, "lookback", "1x"):
        Hopping("1d", "1h", "1x")
    with refused(ValueError, "lookback", "1x"):
        Tumbling("1d", "1x")
    with refused(ValueError, "gap", "1x"):
        Session("1x")
    with refused(ValueError, "gap"):
        Session("forever")
    with refused(ValueError, "duration"):
        Tumbling(5)
    with refused(ValueError, "x", "1x"):
        Continuous("1x")
    with refused(TypeError):
        Continuous(5)
    with refused(TypeError, "12"):
        Continuous("12")


DURATIONS = {
    "1y": 365 * 86400, "1w": 7 * 86400, "2d": 2 * 86400, "3h": 10800, "1m": 60, "5s": 5, "1.5h": 5400,
    "1d 2h": 86400 + 7200, "2h1d": 86400 + 7200, "1y2w3d4h5m6s": 365 * 86400 + 14 * 86400 + 3 * 86400 + 4 * 3600 + 306,
    "0.5d": 43200, "1 d": 86400,
}  # fmt: skip


@pytest.mark.parametrize("text", DURATIONS)
def test_durations(text: str) -> None:
    assert Continuous(text).duration_total_seconds() == DURATIONS[text]


@pytest.mark.parametrize(("text", "kind"), [
    ("1D", ValueError), ("1M", ValueError), ("1q", ValueError), ("1month", ValueError), ("", ValueError),
    ("12", TypeError), (12, TypeError), (None, TypeError), ("abc", ValueError), ("-1d", ValueError),
])  # fmt: skip
def test_bad_durations(text: Any, kind: type[Exception]) -> None:
    with refused(kind, *([text] if isinstance(text, str) else [])):
        Continuous(text)


def test_the_remedy_fits_what_is_no_type() -> None:
    for annotation, remedy in {
        Decimal: "Decimal[2]",
        Dec: "Decimal[2]",
        Embedding: "Embedding[128]",
        list: "List[int]",
        timedelta: "use int",
        np.int64: "use int",
    }.items():
        with pytest.raises(TypeError, match="is not a type a field can have") as caught:
            dataset(type("D", (), {"__annotations__": {"x": annotation, "t": datetime}}))
        assert remedy in str(caught.value)
        assert "@struct to use" not in str(caught.value)
