# Users spell annotations in every way there is.
# ruff: noqa: F821

from typing import Dict, List, Optional, Union

import numpy as np
import pandas as pd
import pytest

from umbel.types import dtypes
from umbel.types.annotations import Embedding, from_annotation
from umbel.types.structs import is_struct, struct, struct_type


@struct
class Point:
    x: int
    label: Optional[str]


@struct
class Path:
    points: List[Point]
    named: Dict[str, Point]
    color: Optional[str]


def test_constructor_takes_positions_and_names():
    assert Point(1, "a") == Point(x=1, label="a")
    assert repr(Point(1, "a")) == "Point(x=1, label='a')"
    with pytest.raises(TypeError):
        Point(1)


def test_type():
    assert struct_type(Point) == dtypes.Struct("Point", (("x", dtypes.Int()), ("label", dtypes.Optional(dtypes.Str()))))
    assert struct_type(Point).cls is Point
    assert is_struct(Point)
    assert not is_struct(int)
    with pytest.raises(TypeError, match="int is not a struct"):
        struct_type(int)


def test_equality_is_by_fields():
    class Other:
        x = 1
        label = "a"

    assert Point(1, "a") == Other()
    assert Point(1, "a") != Point(1, "b")
    assert Point(1, "a") != 5
    assert Point(1, pd.NA) == Point(1, None)
    assert Point(1, pd.NA) != Point(1, "a")
    assert len({Point(1, "a"), Point(1, "a"), Point(1, pd.NA), Point(1, None)}) == 2


def test_equality_of_arrays():
    @struct
    class Vector:
        v: Embedding[2]

    assert Vector([1.0, 2.0]) == Vector(np.array([1.0, 2.0]))
    assert Vector(np.array([1.0, 2.0])) != Vector(np.array([1.0, 3.0]))


def test_as_json_is_nested():
    path = Path([Point(1, "a")], {"start": Point(2, pd.NA)}, None)
    assert path.as_json() == {
        "points": [{"x": 1, "label": "a"}],
        "named": {"start": {"x": 2, "label": None}},
        "color": None,
    }


def test_nested_in_a_function():
    @struct
    class Inner:
        x: int

    @struct
    class Outer:
        inner: "Inner"
        many: List["Inner"]

    assert struct_type(Outer).fields[0] == ("inner", struct_type(Inner))
    assert from_annotation(Outer).fields[1] == ("many", dtypes.List(struct_type(Inner)))


def test_methods_are_refused():
    with pytest.raises(TypeError, match=r"Bad") as caught:

        @struct
        class Bad:
            x: int

            def area(self):
                return self.x

    assert "area" in str(caught.value)
    assert "test_structs.py:" in str(caught.value)


def test_properties_are_refused():
    with pytest.raises(TypeError, match="area"):

        @struct
        class Bad:
            x: int

            @property
            def area(self):
                return self.x


def test_defaults_are_refused():
    with pytest.raises(ValueError, match="Bad") as caught:

        @struct
        class Bad:
            x: int = 5

    assert "'x'" in str(caught.value)
    assert "5" in str(caught.value)


def test_metadata_is_refused():
    class Bad:
        x: int

    Bad.__umbel_meta__ = object()
    with pytest.raises(ValueError, match="meta"):
        struct(Bad)


def test_fields_are_needed():
    with pytest.raises(ValueError, match="no fields"):

        @struct
        class Bad:
            pass


def test_a_class_that_is_no_struct_is_refused():
    class Plain:
        pass

    with pytest.raises(TypeError, match=r"Bad\.p.*Plain"):

        @struct
        class Bad:
            p: Plain


def test_forward_references_are_refused():
    with pytest.raises(TypeError, match=r"Bad\.next.*forward reference"):

        @struct
        class Bad:
            next: Optional["Later"]

    with pytest.raises(TypeError, match="forward reference"):

        @struct
        class Recursive:
            next: Optional["Recursive"]


def test_two_structs_in_one_annotation_are_refused():
    with pytest.raises(TypeError, match="Point and Path"):

        @struct
        class Bad:
            either: Union[Point, Path]
