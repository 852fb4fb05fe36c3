"""Types of fields that cannot be, with the field that has them (api §1)."""

from datetime import datetime, timedelta
from decimal import Decimal as Dec
from enum import Enum
from typing import Any, Dict, List, Literal, Optional, Union

import numpy as np
import pytest

from tests.unit.refusals import refusal
from umbel.datasets import dataset
from umbel.dtypes import (
    Decimal,
    Embedding,
    between,
    oneof,
    regex,
    struct,
)
from umbel.dtypes import Dict as OlderDict
from umbel.lib import meta


@struct
class Point:
    x: int
    y: Optional[float]


@struct
class Line:
    name: str
    points: List[Point]


class Colour(Enum):
    red = "red"


def of(T: Any) -> None:
    @dataset
    class D:
        v: T
        t: datetime


def test_misused_hints() -> None:
    with refusal(TypeError, "Embedding", "is a type hint, use []"):
        Embedding(3)
    with refusal(TypeError, "Decimal", "is a type hint, use []"):
        Decimal(3)
    with refusal(TypeError, "Decimal", "int"):
        Decimal[0]
    with refusal(TypeError, "29", "28"):
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
    (between(int, 5, 1), TypeError, ["no value lies between 5 and 1"]),
    (between(int, 1, 2, True, True), TypeError, ["no value"]),
    (between(float, 1, 1, strict_max=True), TypeError, ["no value"]),
    (between(float, 0, float("nan")), TypeError, ["no value", "nan"]),
    (oneof(str, []), TypeError, ["no options"]),
    (between(int, 0, 2**64), TypeError, ["max", str(2**64), "64 bits"]),
    (oneof(int, [1, 2**63]), TypeError, ["option", str(2**63), "64 bits"]),
    (regex(5), TypeError, ["int", "str"]),
    (Dict[int, str], ValueError, ["int", "str"]),
    (Union[int, str], TypeError, ["int", "str"]),
    (list, TypeError, ["list"]),
    (dict, TypeError, ["dict"]),
    (object, TypeError, ["object"]),
    (Dec, TypeError, ["Decimal"]),
    (Any, TypeError, ["Any", "hint: use int, float"]),
    (OlderDict, TypeError, ["Dict", "hint: say what the values are"]),
    (Colour, TypeError, ["Colour", 'oneof(str, ["a", "b"])']),
    (Literal["red"], TypeError, ["Literal", 'oneof(str, ["a", "b"])']),
    (List[Dict[int, str]], ValueError, ["int"]),
    (Optional[oneof(float, [1.0])], TypeError, ["float"]),
]


@pytest.mark.parametrize(("T", "kind", "words"), BAD, ids=lambda each: str(each)[:40])
def test_bad_types(T: Any, kind: type[Exception], words: list[str]) -> None:
    with refusal(kind, "D", "v", *words):
        of(T)


def test_struct_definitions() -> None:
    with refusal(TypeError, "WithMethod", "area"):

        @struct
        class WithMethod:
            x: int

            def area(self) -> int:
                return 1

    with refusal(ValueError, "WithDefault", "x", "5"):

        @struct
        class WithDefault:
            x: int = 5

    with refusal(ValueError, "Described", "meta"):

        @meta(owner="a@b.co")
        @struct
        class Described:
            x: int

    with refusal(ValueError, "Described2", "meta"):

        @struct
        @meta(owner="a@b.co")
        class Described2:
            x: int


def test_fields_of_structs() -> None:
    class Plain:
        x: int

    with refusal(TypeError, "Holder", "p", "Plain"):

        @struct
        class Holder:
            p: Plain

    with refusal(TypeError, "Forward", "p"):

        @struct
        class Forward:
            p: "NotYet"  # noqa: F821

    with refusal(TypeError, "ForwardList", "p"):

        @struct
        class ForwardList:
            p: List["NotYet"]  # noqa: F821


def test_structs_do_not_mix() -> None:
    with refusal(TypeError, "Point", "Line", "mixed", "Mix"):

        @dataset
        class Mix:
            mixed: Union[Point, Line]
            t: datetime

    with refusal(TypeError, "Point", "Line", "mixed", "Mix2"):

        @dataset
        class Mix2:
            mixed: List[Union[Point, Line]]
            t: datetime


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
