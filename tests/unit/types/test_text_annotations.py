# Users spell annotations in every way there is.
# ruff: noqa: F821

"""Definitions in a module that postpones the evaluation of annotations."""

from __future__ import annotations

from typing import List, Optional

import pytest

from umbel.types import dtypes
from umbel.types.annotations import from_annotation
from umbel.types.class_body import annotations_of
from umbel.types.structs import struct, struct_type


@struct
class Point:
    x: int
    label: Optional[str]


def test_of_a_module():
    assert struct_type(Point).fields == (("x", dtypes.Int()), ("label", dtypes.Optional(dtypes.Str())))


def test_of_a_function():
    @struct
    class Local:
        points: List[Point]

    @struct
    class Outer:
        local: Optional[Local]

    assert struct_type(Outer).fields == (("local", dtypes.Optional(struct_type(Local))),)


def test_the_innermost_name_wins():
    @struct
    class Point:
        y: int

    @struct
    class Outer:
        point: Point

    assert struct_type(Outer).fields[0][1] == struct_type(Point)


def test_unknown_names_are_forward_references():
    with pytest.raises(TypeError, match="Later"):

        @struct
        class Bad:
            x: Later


def test_annotations_of_a_class():
    class Table:
        a: int
        b: Optional[Point]
        int: str = "a field may be called like a type"

    found, names = annotations_of(Table)
    assert [from_annotation(hint, names=names) for hint in found.values()] == [
        dtypes.Int(),
        dtypes.Optional(struct_type(Point)),
        dtypes.Str(),
    ]
