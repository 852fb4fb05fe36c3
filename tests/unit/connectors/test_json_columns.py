"""A value of a JSON column of a database is taken as the same value in a row of JSON is."""

from __future__ import annotations

import polars as pl
import pytest

from umbel.connectors.postgres.columns import FORM
from umbel.connectors.sql.columns import JSON, Column
from umbel.formats.json_lines import JsonLines
from umbel.types.dtype import DType
from umbel.types.dtypes import Decimal, Dict, List, Optional
from umbel.types.validate import validate

TYPES: dict[str, DType] = {
    "decimal": Decimal(scale=2),
    "optional": Optional(Decimal(scale=2)),
    "list": List(Decimal(scale=2)),
    "dict": Dict(Decimal(scale=2)),
}
NUMBERS = [
    "1", "1.5", "1.256", "-0.005", "1e2", "1.005", "12345678901234567890.25", "12345678901234567890.255", "1e-30", "0.1e40",
    "12345678901234567890123456789", '"1.25"', '"1.256"', '"x"', "null", "true", "1.7976931348623157e308",
]  # fmt: skip


def written(name: str, number: str) -> str:
    return {"list": f"[{number}, 2]", "dict": f'{{"a": {number}}}'}.get(name, number)


def judged(frame: pl.DataFrame, dtype: DType) -> list[object]:
    """Return the value of each row, as text for one that is rejected."""
    found = validate(frame, {"v": dtype})
    values = dict(zip(found.accepted.to_list(), found.frame["v"].to_list(), strict=True))
    return [values.get(row, "rejected") for row in range(frame.height)]


@pytest.mark.parametrize("name", TYPES)
def test_numbers_of_a_json_column_are_taken_as_those_of_a_row(name: str) -> None:
    dtype, texts = TYPES[name], [written(name, number) for number in NUMBERS]
    column = FORM.typed(pl.Series("v", texts), Column("v", JSON, is_array=False, type="json"), dtype)
    rows = JsonLines({"v": dtype}, exact=False).whole([f'{{"v": {text}}}'.encode() for text in texts])
    assert judged(column.to_frame(), dtype) == judged(rows.frame, dtype)


@pytest.mark.parametrize("depth", [900, 5000, 100_000])
def test_a_deeply_nested_value_is_rejected(depth: int) -> None:
    texts = pl.Series("v", ["[" * depth + "]" * depth, "[1.5]"])
    column = FORM.typed(texts, Column("v", JSON, is_array=False, type="json"), TYPES["list"])
    assert [value == "rejected" for value in judged(column.to_frame(), TYPES["list"])] == [True, False]
