"""The writer of Delta tables, with a table in a folder."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, TableFeatures, write_deltalake
from deltalake import Schema as TableSchema
from deltalake.schema import ArrayType, PrimitiveType

from tests.connectors.refusing import Recorded, isolated
from umbel.connectors import delta_sink
from umbel.connectors.delta_sink import DeltaWriter
from umbel.connectors.sinks import NoneAccepted, RowChange, RowsRefused, SinkPosition, WriteOptions
from umbel.errors import InvalidValue, Transient
from umbel.runtime.refusals import Refusals, RefusingSink
from umbel.types.dtypes import Decimal, Float, Int, List, Str
from umbel.types.schema import Schema

SINK = RefusingSink(id="x", dataset="T", target="S3 'lake'", keeps_position=True)
AT = "1960-01-01T00:00:00Z"


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(delta_sink, "address_of", lambda _: (str(tmp_path / "table"), {}))
    return str(tmp_path / "table")


def writer(keys: dict[str, Any], values: dict[str, Any], **renames: str) -> DeltaWriter:
    connector: Any = SimpleNamespace(target="S3 'lake', table 't'")
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


def change(key: int, value: Any, before: Any = None) -> RowChange:
    old, new = (None if each is None else {"id": key, "v": each, "at": AT} for each in (before, value))
    return RowChange({"id": key}, old, new, 0)


def table(address: str, *fields: Field, **constraints: str) -> None:
    names = {field.name for field in fields}
    own = [Field(name, PrimitiveType(kind)) for name, kind in (("id", "long"), ("v", "long"), ("at", "timestamp"))]
    made = DeltaTable.create(address, schema=TableSchema([*(each for each in own if each.name not in names), *fields]))
    if constraints:
        made.alter.add_constraint(constraints)


def values(address: str) -> dict[int, Any]:
    return {row["id"]: row["v"] for row in DeltaTable(address).to_pyarrow_table().to_pylist()}


@pytest.mark.parametrize("is_keyed", [True, False])
def test_rows_that_violate_a_constraint_are_found_and_the_others_committed_at_once(
    address: str, is_keyed: bool
) -> None:
    fields = {"id": Int()}, {"v": Int()}
    more = [] if is_keyed else [Field("_weight", PrimitiveType("integer"))]
    table(address, Field("at", PrimitiveType("timestamp"), nullable=False), *more, positive="v > 0")
    made = writer(*fields) if is_keyed else writer({}, fields[0] | fields[1])
    assert made.position() == SinkPosition()
    found = isolated(made, [change(n, n % 40 or -1) for n in range(200)], 1)
    assert [each.number for each in found.refused] == [0, 40, 80, 120, 160]
    assert "positive (v > 0), at NOT NULL" in found.refused[0].error.message
    assert values(address) == {n: n % 40 for n in range(200) if n % 40}
    assert DeltaTable(address).version() == 2
    assert made.position() == SinkPosition(1)
    if is_keyed:
        later = [change(40, 7), change(0, None, -1), change(2, None, 2), change(3, -3, 3)]
        assert [each.number for each in isolated(made, later, 2).refused] == [3]
        now = values(address)
        assert (now[40], now[3], 2 in now, 0 in now) == (7, 3, False, False)


def test_a_value_that_its_column_does_not_hold_is_refused_alone(address: str) -> None:
    table(address, Field("v", PrimitiveType("integer")))
    made = writer({"id": Int()}, {"v": Float()})
    made.position()
    found = isolated(made, [change(1, 1.0), change(2, 1.5), change(3, 1e12), change(4, 4.0)], 1)
    assert [each.number for each in found.refused] == [1, 2]
    assert "column 'v' of type int32: Float value 1.500000 was truncated" in found.refused[0].error.message
    assert values(address) == {1: 1, 4: 4}


def test_a_part_of_a_value_that_its_column_does_not_hold_is_refused(address: str) -> None:
    table(address, Field("v", ArrayType(ArrayType(PrimitiveType("integer")))))
    made = writer({"id": Int()}, {"v": List(List(Int()))})
    made.position()
    found = isolated(made, [change(1, [[1]]), change(2, [[1 << 40]])], 1)
    assert [each.number for each in found.refused] == [1]
    assert values(address) == {1: [[1]]}


def test_a_decimal_goes_into_a_column_of_less_precision(address: str) -> None:
    table(address, Field("v", PrimitiveType("decimal(5,2)")))
    made = writer({"id": Int()}, {"v": Decimal(2)})
    made.position()
    found = isolated(made, [change(1, "1.25"), change(2, "12345.00")], 1)
    assert [each.number for each in found.refused] == [1]
    assert str(values(address)[1]) == "1.25"


def test_a_type_without_the_values_of_the_field_is_an_error_at_once(address: str) -> None:
    table(address, Field("v", ArrayType(PrimitiveType("long"))))
    with pytest.raises(InvalidValue, match="column 'v' is of type list"):
        writer({"id": Int()}, {"v": Int()}).position()


def test_a_commit_examines_the_columns_of_a_table_and_makes_none(address: str) -> None:
    fields: Any = {"id": Int()}, {"v": Int()}
    writer(*fields).examine()
    assert not DeltaTable.is_deltatable(address)
    table(address)
    writer(*fields).examine()
    with pytest.raises(InvalidValue, match="the table has no column 'w'"):
        writer(*fields, v="w").examine()
    with pytest.raises(InvalidValue, match="column 'v' is of type int64, which has no large_list"):
        writer(fields[0], {"v": List(Int())}).examine()


def test_an_update_is_accepted_where_only_an_insertion_violates_a_constraint(address: str) -> None:
    table(address, Field("id", PrimitiveType("integer")), Field("note", PrimitiveType("string"), nullable=False))
    rows = pa.table(
        {"id": pa.array([1], pa.int32()), "v": [1], "at": pa.array([0], pa.timestamp("us", "UTC")), "note": ["a"]}
    )
    write_deltalake(address, rows, mode="append")
    made = writer({"id": Int()}, {"v": Int()})
    made.position()
    changes = [change(1, 5), change(2, 5), change(1 << 40, 5)]
    assert [each.number for each in isolated(made, changes, 1).refused] == [1, 2]
    assert values(address) == {1: 5}


def test_a_constraint_that_is_added_after_the_trial_is_met_by_the_next_one(address: str) -> None:
    class Late(Recorded):
        def settle(self, refused: Any, accepted: Any) -> None:
            super().settle(refused, accepted)
            DeltaTable(address).alter.add_constraint({"small": "v < 10"})

    table(address, positive="v > 0")
    made, changes = writer({"id": Int()}, {"v": Int()}), [change(1, -1), change(2, 20), change(3, 3)]
    made.position()
    with pytest.raises(RowsRefused):
        made.write(changes, SinkPosition(1))
    with pytest.raises(Transient, match=r"positive \(v > 0\), small \(v < 10\)"):
        made.write_accepted(changes, SinkPosition(1), Late())
    again = writer({"id": Int()}, {"v": Int()})
    assert again.position() == SinkPosition()
    assert [each.number for each in isolated(again, changes).refused] == [0, 1]
    assert values(address) == {3: 3}


def test_where_no_row_is_accepted_nothing_is_committed(address: str) -> None:
    table(address, positive="v > 0")
    made = writer({"id": Int()}, {"v": Int()})
    made.position()
    changes = [change(1, -1), change(2, -2), change(3, None, 3)]
    with pytest.raises(RowsRefused):
        made.write(changes, SinkPosition(1))
    refusals = Refusals(SimpleNamespace(noted=lambda _: None, note=lambda *_: None), SINK, SinkPosition())  # type: ignore[arg-type]
    with pytest.raises(NoneAccepted, match="positive"):
        made.write_accepted(changes, SinkPosition(1), refusals.of(SinkPosition(1)))
    assert made.position() == SinkPosition()
    assert DeltaTable(address).version() == 1


def test_a_keyless_table_may_have_further_columns(address: str) -> None:
    """The sink stood still from the commit on that added one."""
    doubled = Field("twice", PrimitiveType("long"), metadata={"delta.generationExpression": "v * 2"})
    table(address, doubled, Field("_weight", PrimitiveType("integer")))
    made = writer({}, {"id": Int(), "v": Int()})
    made.position()
    made.write([change(1, 5)], SinkPosition(1))
    DeltaTable(address).alter.add_columns([Field("note", PrimitiveType("string"))])
    made.write([change(2, 6)], SinkPosition(2))
    found = DeltaTable(address).to_pyarrow_table().sort_by("id").to_pylist()
    assert [(each["id"], each["v"], each["twice"], each["note"]) for each in found] == [
        (1, 5, 10, None),
        (2, 6, 12, None),
    ]


@pytest.mark.parametrize(
    ("feature", "settings", "remedy"),
    [
        (TableFeatures.RowTracking, {}, "DROP FEATURE"),
        (None, {"delta.appendOnly": "true"}, r"UNSET TBLPROPERTIES \(delta.appendOnly\)"),
        (None, {}, "delete _delta_log/_last_checkpoint"),
    ],
)
def test_what_was_made_of_a_table_is_reported_with_a_remedy(
    address: str, feature: Any, settings: dict[str, str], remedy: str
) -> None:
    """All of it was said to be a bucket that does not exist."""
    made = writer({"id": Int()}, {"v": Int()})
    made.position()
    made.write([change(1, 5)], SinkPosition(1))
    found = DeltaTable(address)
    if feature is not None:
        found.alter.add_feature(feature, allow_protocol_versions_increase=True)
    elif settings:
        found.alter.set_table_properties(settings)
    else:
        found.create_checkpoint()
        next(Path(address, "_delta_log").glob("*.checkpoint*")).unlink()
    with pytest.raises(Transient) as caught:
        made.write([change(1, 6, 5)], SinkPosition(2))
    assert re.search(remedy, caught.value.hint or "")
