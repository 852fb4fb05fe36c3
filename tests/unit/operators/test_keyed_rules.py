"""Keyed operators: schemas, where rows are sent, identity. (What they compute: tests/laws.)"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.operators.frames import leaf, schema
from umbel.errors import UmbelError
from umbel.operators.dedup import Dedup
from umbel.operators.first import First
from umbel.operators.index import Index, IndexMode
from umbel.operators.join import AsOfJoin, TableJoin
from umbel.operators.latest import Latest
from umbel.operators.merge import Merge
from umbel.operators.operator import Operator
from umbel.types.windows import Session, Tumbling

STREAM = schema(a=int, b=str, o=str | None)
TABLE = schema({"k": int}, v=int)
PAIRS = schema({"k": int, "l": str}, timestamp="rt", v=int, w=float | None)


def make(kind: type[Operator], *inputs: Any, **parameters: Any) -> Any:
    parents = tuple(leaf(each, f"D{place}") for place, each in enumerate(inputs))
    return kind(parents=parents, pipeline="D.p", **parameters)


def test_a_join_adds_the_columns_of_the_right_side() -> None:
    on = (("b", "l"), ("a", "k"))
    inner = make(AsOfJoin, STREAM, PAIRS, on=on, inner=True)
    assert {name: str(dtype) for name, dtype in inner.schema.values} == {
        "a": "int",
        "b": "str",
        "o": "Optional[str]",
        "v": "int",
        "w": "Optional[float]",
    }
    assert inner.exchange() == (("a", "b"), ("k", "l"))
    left = make(AsOfJoin, STREAM, PAIRS, on=on, inner=False, fields=("rt", "v"))
    assert [(name, str(dtype)) for name, dtype in left.schema.values][-2:] == [
        ("rt", "Optional[datetime]"),
        ("v", "Optional[int]"),
    ]
    assert left.schema.timestamp == "t"


def test_a_table_keeps_its_keys_in_a_join() -> None:
    found = make(TableJoin, TABLE, schema({"id": int}, n=int), on=(("v", "id"),), inner=True)
    assert (found.schema.key_names, found.schema.value_names) == (["k"], ["v", "n"])
    assert found.exchange() == (("v",), ("id",))


def test_dedup_keeps_the_schema_and_sends_equal_rows_to_one_shard() -> None:
    assert make(Dedup, STREAM).exchange() == (("a", "b", "o"),)
    found = make(Dedup, STREAM, by=("b",), window=Tumbling("1h"))
    assert (found.exchange(), found.schema) == ((("b",),), STREAM)


@pytest.mark.parametrize("kind", [First, Latest])
def test_choices_key_the_rows(kind: type[Operator]) -> None:
    found = make(kind, STREAM, keys=("b", "a"))
    assert (found.schema.key_names, found.schema.value_names) == (["b", "a"], ["o"])
    assert found.exchange() == (("b", "a"),)


def test_an_index_is_of_keyed_rows() -> None:
    found = make(Index, PAIRS, dataset="D", mode=IndexMode.UPSERT)
    assert (found.schema, found.exchange()) == (PAIRS, (("k", "l"),))


REFUSED: list[tuple[type[Operator], Any, dict[str, Any], type[Exception], str]] = [
    (Index, (STREAM,), {"dataset": "D", "mode": IndexMode.UPSERT}, ValueError, "no key fields"),
    (First, (STREAM,), {"keys": ()}, ValueError, "at least one key"),
    (Latest, (STREAM,), {"keys": ("t",)}, ValueError, "'t'"),
    (Latest, (STREAM,), {"keys": ("o",)}, ValueError, "'o' is optional"),
    (First, (TABLE,), {"keys": ("v",)}, TypeError, "keyless, found key 'k'"),
    (Dedup, (TABLE,), {}, ValueError, "keyless, found key 'k'"),
    (AsOfJoin, (STREAM, STREAM), {"on": (("a", "a"),), "inner": True}, ValueError, "'D1' has no key"),
    (AsOfJoin, (STREAM, PAIRS), {"on": (("a", "k"),), "inner": True}, ValueError, "'k'.*'k', 'l'"),
]


@pytest.mark.parametrize(("kind", "inputs", "parameters", "error", "text"), REFUSED)
def test_refused(kind: Any, inputs: Any, parameters: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        make(kind, *inputs, **parameters)
    assert isinstance(caught.value, UmbelError)
    assert "D.p" in str(caught.value)


def test_every_parameter_is_part_of_the_identity() -> None:
    on = (("a", "k"), ("b", "l"))
    variants = [
        make(AsOfJoin, STREAM, PAIRS, on=on, inner=True),
        make(AsOfJoin, STREAM, PAIRS, on=on, inner=False),
        make(AsOfJoin, STREAM, PAIRS, on=on, inner=True, back=5),
        make(AsOfJoin, STREAM, PAIRS, on=on, inner=True, ahead=5),
        make(AsOfJoin, STREAM, PAIRS, on=on, inner=True, fields=("v",)),
        make(Dedup, STREAM),
        make(Dedup, STREAM, window=Tumbling("1h")),
        make(Dedup, STREAM, window=Tumbling("2h")),
        make(Dedup, STREAM, window=Session("1h")),
        make(Latest, STREAM, keys=("a",)),
        make(First, STREAM, keys=("a",)),
        make(First, STREAM, keys=("b",)),
    ]
    assert len({each.id for each in variants}) == len(variants)
    assert make(Dedup, STREAM, window=Tumbling("60m")).id == make(Dedup, STREAM, window=Tumbling("1h")).id


def test_merge_takes_the_changes_of_all() -> None:
    found = make(Merge, TABLE, TABLE)
    assert found.schema == TABLE
    assert found.apply(TABLE.empty()).schema == TABLE.changes()
