"""Types as plain data."""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Any, Optional

import pytest

from umbel.expr.lattice import Null
from umbel.expr.type_records import type_from_record, type_to_record
from umbel.types.annotations import Decimal, Dict, Embedding, between, from_annotation, oneof, regex
from umbel.types.structs import struct
from umbel.types.windows import Window


@struct
class Inner:
    x: int | None


@struct
class Outer:
    inner: Inner
    names: list[oneof(str, ["a"])]  # type: ignore[valid-type]


ALL: list[Any] = [
    int, float, bool, str, bytes, datetime, date, Decimal[3], list[int | None], Dict[list[float]], Embedding[4],
    oneof(int, [1, 2]), oneof(str, ["a"]), between(float, 0, 1.5, strict_max=True), regex("a|b"), Window, Inner, Outer,
    Optional[list[Outer]],
]  # fmt: skip


@pytest.mark.parametrize("annotation", ALL, ids=str)
def test_round_trip(annotation: Any) -> None:
    dtype = from_annotation(annotation)
    record = json.loads(json.dumps(type_to_record(dtype)))
    assert type_from_record(record) == dtype
    assert str(type_from_record(record)) == str(dtype)


def test_null() -> None:
    assert type_from_record(type_to_record(Null())) == Null()
