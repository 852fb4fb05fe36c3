"""The writer of Delta tables, with a table in a folder."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from umbel.connectors import delta_sink
from umbel.connectors.delta_sink import DeltaWriter
from umbel.connectors.sinks import RowChange, SinkPosition, WriteOptions
from umbel.errors import InvalidValue
from umbel.types.dtypes import Float, Int, Str
from umbel.types.schema import Schema

AT = "1960-01-01T00:00:00Z"


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(delta_sink, "address_of", lambda _: (str(tmp_path / "table"), {}))
    return str(tmp_path / "table")


def writer(keys: dict[str, Any], values: dict[str, Any], **renames: str) -> DeltaWriter:
    connector: Any = SimpleNamespace(title="S3 'lake'", prefix="t")
    schema = Schema(tuple(keys.items()), tuple(values.items()), "at")
    return DeltaWriter(connector, WriteOptions(id="x", dataset="T", schema=schema, renames=renames))


def rows(address: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values())[:-1] for row in DeltaTable(address).to_pyarrow_table().to_pylist()]


@pytest.mark.parametrize(
    ("key", "dtype"), [(1, Int()), ("NaN", Float()), ("-Infinity", Float()), ("a\0`ü", Str()), ("", Str())]
)
@pytest.mark.parametrize("column", ["v", "a`b", "a.b", "`", "select", "Ü'"])
def test_a_row_of_a_key_is_replaced_and_deleted(address: str, key: Any, dtype: Any, column: str) -> None:
    made = writer({"id": dtype}, {"v": Str()}, v=column, id="the `id`")
    assert made.position() == SinkPosition()
    old, new = ({"id": key, "v": each, "at": AT} for each in ("a", "b"))
    made.write([RowChange({"id": key}, None, old, 0)], SinkPosition(1))
    made.write([RowChange({"id": key}, old, new, 0)], SinkPosition(2))
    ((_, value),) = rows(address)
    assert value == "b"
    made.write([RowChange({"id": key}, new, None, 0)], SinkPosition(3))
    assert rows(address) == []


def test_columns_that_differ_in_case_are_refused_by_name(address: str) -> None:
    with pytest.raises(InvalidValue, match=r"cannot differ in case only: 'at', 'id', 'V', 'v'"):
        writer({"id": Int()}, {"V": Str(), "v": Str()}).position()
    assert writer({"id": Int()}, {"V": Str(), "v": Str()}, V="w").position() == SinkPosition()
