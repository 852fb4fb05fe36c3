"""Defaults of looked-up features: values that fit the type of the field (api §6.2)."""

from datetime import datetime
from decimal import Decimal as PythonDecimal
from typing import List

import numpy as np
import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal
from umbel.featuresets import feature as F
from umbel.featuresets import featureset
from umbel.testing import MockClient

__owner__ = "team@example.com"


def _with_default(field_, kind, default):
    @featureset
    class FS:
        sku: int = F()
        value: kind = F(field_, default=default)

    return FS


@dataset(index=True)
class Numbers:
    sku: int = field(key=True)
    f: float
    d: Decimal[2]
    i: int
    b: bool
    s: str
    many: List[int]
    t: datetime


@pytest.mark.parametrize(
    ("name", "kind", "default"),
    [
        ("i", int, 0.0), ("i", int, 1.5), ("i", int, True), ("i", int, "1"), ("i", int, PythonDecimal(1)),
        ("s", str, 1), ("s", str, True), ("b", bool, 1), ("b", bool, 0.0), ("b", bool, "true"),
        ("f", float, "1"), ("f", float, True), ("f", float, float("nan")), ("f", float, np.float32("nan")),
        ("d", Decimal[2], "1.5"), ("d", Decimal[2], True), ("d", Decimal[2], float("nan")), ("d", Decimal[2], 10**27),
        ("many", List[int], [1.0]), ("many", List[int], 3),
    ],
)  # fmt: skip
def test_defaults_refused(name: str, kind, default) -> None:
    with refusal(ValueError, "value", f"Numbers.{name}", repr(default)):
        _with_default(getattr(Numbers, name), kind, default)


@pytest.mark.parametrize(
    ("name", "kind", "default", "shown"),
    [
        ("i", int, 3, 3), ("i", int, np.int64(3), 3), ("s", str, "x", "x"), ("b", bool, False, False),
        ("f", float, 1, 1.0), ("f", float, 0.5, 0.5), ("many", List[int], [1, 2], [1, 2]),
        ("d", Decimal[2], 1, PythonDecimal("1.00")), ("d", Decimal[2], 1.239, PythonDecimal("1.24")),
        ("d", Decimal[2], PythonDecimal("1.239"), PythonDecimal("1.24")),
        ("d", Decimal[2], PythonDecimal("1.5"), PythonDecimal("1.50")),
    ],
)  # fmt: skip
def test_defaults_taken(name: str, kind, default, shown) -> None:
    features = _with_default(getattr(Numbers, name), kind, default)
    client = MockClient()
    client.commit(message="m", datasets=[Numbers], featuresets=[features])
    found = client.query(["FS.sku"], ["FS.value"], pd.DataFrame({"FS.sku": [9]}))["FS.value"].tolist()
    assert found == [shown]
    assert str(found[0]) == str(shown)
