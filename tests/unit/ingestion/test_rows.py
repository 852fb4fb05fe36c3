"""Ingestion: preproc, where, validation, debezium, since, until, sample (api §3.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Optional

import pandas as pd
import polars as pl
import pytest

from umbel.connectors import Webhook
from umbel.definitions.preproc import ConstantColumn, Evaluated, ReferenceColumn
from umbel.definitions.records import DatasetDefinition, Sampling, SourceDefinition
from umbel.expr import Expr, col, when
from umbel.formats.json_lines import JsonLines
from umbel.functions.computed import ByExpression, ByFunction
from umbel.functions.user_function import UserFunction
from umbel.ingestion.rows import prepare, requested
from umbel.types.annotations import from_annotation
from umbel.types.raw import TOMBSTONE, Raw, from_records, rejects
from umbel.types.schema import TRUNCATION, Schema
from umbel.types.validate import Validated

WEB = Webhook(name="w").endpoint("e")


def dataset(keys: tuple[str, ...] = (), **annotations: Any) -> DatasetDefinition:
    types = {name: from_annotation(each) for name, each in annotations.items()}
    key_types = tuple((name, types[name]) for name in keys)
    values = tuple((name, dtype) for name, dtype in types.items() if name not in (*keys, "t"))
    return DatasetDefinition(name="D", version=1, schema=Schema(key_types, values, "t", tuple(types)), history=1)


def feed(cdc: str = "append", **options: Any) -> SourceDefinition:
    options["preproc"] = tuple(options.get("preproc", {}).items())
    return SourceDefinition(connector=WEB, disorder=1, cdc=cdc, every=1, **options)


def by(how: Expr | Callable[..., Any], **reads: Any) -> Evaluated:
    typed = tuple((name, from_annotation(each)) for name, each in reads.items())
    return Evaluated(ByExpression(how) if isinstance(how, Expr) else ByFunction(UserFunction(how)), typed)


def day(number: int) -> datetime:
    return datetime(2024, 1, number, tzinfo=UTC)


STREAM = dataset(a=int, b=str, t=datetime)
ROWS = [
    {"a": n, "b": "xyz"[n % 3], "t": f"2024-01-0{n + 1}T00:00:00Z", "raw": str(n), "nest": {"in": {"x": n}}}
    for n in range(5)
]


def taken(rows: list[Any], source: SourceDefinition, into: DatasetDefinition = STREAM) -> Validated:
    return prepare(from_records(rows, requested(source, into)), source, into)


def test_rows_that_fit_are_taken_in_the_form_of_the_dataset() -> None:
    found = taken([*ROWS, {"a": "x", "b": "y", "t": "2024-01-01"}, 7, {"a": 1, "b": None, "t": 3}], feed())
    assert found.frame.schema == STREAM.schema.polars()
    assert found.accepted.to_list() == [0, 1, 2, 3, 4]
    assert [(row, name) for row, name, _ in found.rejects.iter_rows()] == [(5, "a"), (6, ""), (7, "b")]


def test_the_raw_rows_stay_as_they_were() -> None:
    source = feed(preproc={"a": ConstantColumn(9)})
    raw = from_records(ROWS)
    before = raw.frame.clone()
    prepare(raw, source, STREAM)
    assert raw.frame.columns == before.columns
    assert raw.frame["a"].to_list() == before["a"].to_list()


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (ConstantColumn(9), [9] * 5),
        (ReferenceColumn(("raw",)), [0, 1, 2, 3, 4]),
        (ReferenceColumn(("nest", "in", "x")), [0, 1, 2, 3, 4]),
        (by(col("raw") * 2, raw=int), [0, 2, 4, 6, 8]),
        (by(lambda df: df["raw"].astype(int) + 1), [1, 2, 3, 4, 5]),
        (by(lambda df: df["raw"] + 1, raw=int), [1, 2, 3, 4, 5]),
        (by(lambda df: [len(df)] * len(df)), [5] * 5),
    ],
)
def test_preproc(how: Any, expected: list[int]) -> None:
    found = taken(ROWS, feed(preproc={"a": how}))
    assert found.frame["a"].to_list() == expected
    assert found.rejects.is_empty()


def test_preproc_sees_what_came_in_and_nothing_made() -> None:
    source = feed(preproc={"a": by(col("a") + 1, a=int), "b": by(lambda df: df["a"].astype(str))})
    assert taken(ROWS, source).frame.rows()[1][:2] == (2, "1")


def test_functions_get_nullable_dtypes_where_a_type_is_known() -> None:
    seen: dict[str, str] = {}

    def is_even(df: pd.DataFrame) -> pd.Series:
        seen.update(df.dtypes.astype(str).to_dict())
        return df["a"] >= 0

    taken(ROWS, feed(where=by(is_even)))
    assert seen == {"a": "Int64", "b": "string", "t": "datetime64[ns, UTC]", "raw": "string", "nest": "object"}


@pytest.mark.parametrize(
    "how",
    [
        by(col("a") > 2, a=int),
        by(lambda df: df["a"] > 2),
        by(lambda df: (df["a"] > 2).tolist()),
        by(col("raw") > 2, raw=int),
    ],
)
def test_where(how: Evaluated) -> None:
    found = taken(ROWS, feed(where=how))
    assert (found.frame["a"].to_list(), found.accepted.to_list()) == ([3, 4], [3, 4])
    assert found.rejects.is_empty()


def test_where_comes_after_preproc() -> None:
    source = feed(preproc={"a": by(col("raw") * 10, raw=int)}, where=by(col("a") > 25, a=int))
    assert taken(ROWS, source).frame["a"].to_list() == [30, 40]


ERRORS = [
    ({"preproc": {"a": ReferenceColumn(("zz",))}}, [0, 1, 2, 3, 4], "a", "column 'zz': the column is missing"),
    ({"preproc": {"a": ReferenceColumn(("nest", "zz"))}}, [0, 1, 2, 3, 4], "a", "null"),
    ({"preproc": {"a": by(col("zz"), zz=int)}}, [0, 1, 2, 3, 4], "a", "column 'zz': null"),
    ({"preproc": {"a": by(col("b"), b=int)}}, [0, 1, 2, 3, 4], "a", "column 'b'"),
    ({"preproc": {"a": by(lambda df: df["zz"])}}, [0, 1, 2, 3, 4], "a", "KeyError"),
    ({"preproc": {"a": by(lambda df: df["a"].where(df["a"] != 3))}}, [3], "a", "null"),
    ({"preproc": {"a": by(lambda df: 6 // df["a"].astype(object))}}, [0], "a", "ZeroDivisionError"),
    ({"preproc": {"a": by(6 // col("a"), a=int)}}, [0], "a", "6 // "),
    ({"preproc": {"a": by(when(col("a") != 2).then(col("a")), a=int)}}, [2], "a", "null"),
    ({"where": by(lambda df: 6 // df["a"].astype(object) > 1)}, [0], "", "where: ZeroDivisionError"),
    ({"where": by(col("zz"), zz=bool)}, [0, 1, 2, 3, 4], "", "where: column 'zz'"),
]


@pytest.mark.parametrize(("options", "rows", "field", "reason"), ERRORS)
def test_a_wrong_row_is_rejected_and_no_other(options: Any, rows: list[int], field: str, reason: str) -> None:
    found = taken(ROWS, feed(**options))
    assert [row for row, *_ in found.rejects.iter_rows()] == rows
    assert set(found.rejects["field"]) == {field}
    assert all(reason in why for why in found.rejects["reason"])
    assert not set(found.accepted) & set(rows)


def test_wrong_rows_are_found_whatever_the_batch() -> None:
    rows = [{"a": n, "b": "x", "t": "2024-01-01"} for n in range(300)]
    bad = {n for n in range(300) if n % 37 == 5 or n in (0, 299)}

    def picky(df: pd.DataFrame) -> pd.Series:
        if set(df["a"]) & bad:
            raise RuntimeError("no")
        return df["a"]

    source = feed(preproc={"b": by(lambda df: picky(df).astype(str))})
    for size in (1, 7, 300):
        rejected = set()
        for start in range(0, 300, size):
            found = taken(rows[start : start + size], source)
            rejected |= {start + row for row in found.rejects["row"]}
        assert rejected == bad


def test_since_and_until() -> None:
    assert taken(ROWS, feed(since=day(2), until=day(4))).frame["a"].to_list() == [1, 2]


def test_a_sample_is_the_same_rows_every_time_and_about_its_share() -> None:
    rows = [{"a": n % 1000, "b": str(n), "t": "2024-01-01"} for n in range(4000)]
    source = feed(sample=Sampling(0.3, ("a",)))
    found = taken(rows, source)
    again = taken(list(reversed(rows)), source)
    assert set(found.frame["b"]) == set(again.frame["b"])
    assert 0.25 * 4000 < found.frame.height < 0.35 * 4000
    groups = found.frame.group_by("a").len()["len"]
    assert set(groups) == {4}
    wider = taken(rows, feed(sample=Sampling(0.6, ("a",))))
    assert set(found.frame["b"]) < set(wider.frame["b"])
    assert taken(rows, feed(sample=Sampling(0, ("a",)))).frame.is_empty()
    assert taken(rows, feed(sample=Sampling(1.0, ("a",)))).frame.height == 4000


TABLE = dataset(("k",), k=int, v=str, n=int | None, t=datetime)


def envelope(op: str, row: Any, ts: int | None = None, **extra: Any) -> dict[str, Any]:
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {"op": op, **sides, **({} if ts is None else {"source": {"ts_ms": ts}}), **extra}


def test_debezium() -> None:
    first, second = {"k": 1, "v": "a", "n": 3, "t": "2024-01-01"}, {"k": 2, "v": "b", "n": None, "t": "2024-01-02"}
    late = int(day(3).timestamp() * 1000)
    rows = [
        envelope("c", first),
        envelope("u", {**first, "v": "c", "t": "2024-01-02"}),
        {"payload": envelope("r", second), "schema": {}},
        envelope("d", first, late),
        envelope("d", {"k": 2, "v": None, "t": None}, late),
        envelope("d", second, 0),
        envelope("d", {"k": None, "t": "2024-01-01"}, late),
        envelope("d", {"k": 5}),
        envelope("x", first),
        envelope("c", None),
        7,
    ]
    found = taken(rows, feed("debezium"), TABLE)
    report = found.frame.select("k", "v", "t", "_at", "_weight").rows()
    assert report == [
        (1, "a", day(1), day(1), 1),
        (1, "c", day(2), day(2), 1),
        (2, "b", day(2), day(2), 1),
        (1, "a", day(1), day(3), -1),
        (2, None, day(3), day(3), -1),
        (2, "b", day(2), day(2), -1),
    ]
    assert found.accepted.to_list() == [0, 1, 2, 3, 4, 5]
    reasons = {row: (name, why) for row, name, why in found.rejects.iter_rows()}
    assert sorted(reasons) == [6, 7, 8, 9, 10]
    assert reasons[6][0] == "k"
    assert "of the deletion is missing" in reasons[7][1]
    assert "'x'" in reasons[8][1]
    assert "'after' is missing" in reasons[9][1]


def test_debezium_without_keys() -> None:
    """An update takes the row before it back; only whole rows that were let in are taken back."""
    one, two = {"a": 1, "b": "x", "t": "2024-01-01"}, {"a": 2, "b": "x", "t": "2024-01-01"}
    low, late = {**one, "a": 0}, int(day(3).timestamp() * 1000)
    update = {"op": "u", "source": {"ts_ms": late}}
    rows = [
        envelope("c", one),
        {**update, "before": one, "after": two},
        {**update, "before": two, "after": low},
        {**update, "before": low, "after": one},
        envelope("d", one, late),
        envelope("d", low, late),
        envelope("c", low),
        {**update, "before": None, "after": two},
        {**update, "before": {**one, "t": None}, "after": two},
        {**update, "before": one, "after": {**two, "b": None}},
        envelope("d", {"a": 1, "b": None, "t": None}, late),
        {**update, "before": one, "after": two, "source": {"ts_ms": 10**18}},
        "no row",
    ]
    found = taken(rows, feed("debezium", where=by(col("a") > 0, a=int)))
    assert found.accepted.to_list() == [0, 1, 1, 2, 3, 4]
    assert found.frame.select("a", "_at", "_weight").rows() == [
        (1, day(1), 1),
        (1, day(3), -1),
        (2, day(3), 1),
        (2, day(3), -1),
        (1, day(3), 1),
        (1, day(3), -1),
    ]
    assert found.rejects["row"].unique().sort().to_list() == [7, 8, 9, 10, 11, 12]
    reasons = found.rejects.group_by("row", maintain_order=True).agg("field", "reason")
    assert "takes the row before an update back" in reasons["reason"][0][0]
    assert reasons["field"].to_list()[1:4] == [["t"], ["b"], ["b", "t"]]
    assert "the instant is not in the years" in reasons["reason"][4][0]


def test_deletions_of_whole_rows_are_filtered_as_rows_are() -> None:
    frame = pl.DataFrame({"a": [1, 0], "b": ["x", "x"], "t": ["2024-01-01"] * 2})
    raw = Raw(frame, rejects({}), deletions={0: day(2), 1: day(2)})
    found = prepare(raw, feed("native", where=by(col("a") > 0, a=int)), STREAM)
    assert found.frame.select("a", "_at", "_weight").rows() == [(1, day(2), -1)]
    assert found.rejects.is_empty()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"op": op, "after": {}, "before": {}} for op in (["c"], {"c": 1}, 5, None, "create")),
        *(
            {"op": "d", "before": {"k": 1}, "source": {"ts_ms": ms}}
            for ms in (10**18, -(10**18), 1e30, 253_402_300_800_000)
        ),
        {"op": "d", "before": {"k": 1}, "ts_ms": True},
    ],
    ids=repr,
)
def test_an_envelope_that_is_none_is_rejected_alone(wrong: Any) -> None:
    good = envelope("c", {"k": 1, "v": "a", "n": 3, "t": "2024-01-01"})
    found = taken([wrong, good], feed("debezium"), TABLE)
    assert (found.accepted.to_list(), found.rejects["row"].to_list()) == ([1], [0])


def test_tombstones_are_no_loss_for_debezium() -> None:
    nothing = Raw(pl.DataFrame(height=2), rejects({0: TOMBSTONE, 1: TOMBSTONE}))
    for keyed in (TABLE, STREAM):
        found = prepare(nothing, feed("debezium"), keyed)
        assert found.frame.is_empty()
        assert found.rejects.is_empty()
    refused = prepare(nothing, feed(), STREAM).rejects
    assert refused["reason"].to_list() == [TOMBSTONE, TOMBSTONE]


def test_where_and_preproc_of_debezium_leave_deletions() -> None:
    rows = [envelope("c", {"k": 1, "v": "a", "t": "2024-01-01"}), envelope("d", {"k": 1, "t": "2024-01-02"})]
    source = feed("debezium", where=by(lambda df: df["v"] == "b"), preproc={"n": by(col("v").str.len(), v=str)})
    found = taken(rows, source, TABLE)
    assert found.frame.select("k", "_weight").rows() == [(1, -1)]
    assert found.rejects.is_empty()


def test_requested_columns() -> None:
    source = feed(preproc={"a": by(col("raw") * 2, raw=int)}, where=by(col("a") > 1, a=int))
    assert {name: str(dtype) for name, dtype in requested(source, STREAM).items()} == {
        "raw": "int",
        "b": "str",
        "t": "datetime",
    }
    assert requested(feed("debezium"), TABLE) == {}


def test_no_rows() -> None:
    source = feed(
        preproc={"a": by(col("raw") * 2, raw=int), "b": ConstantColumn("x")}, where=by(lambda df: df["a"] > 1)
    )
    nothing = Raw(pl.DataFrame(schema={"raw": pl.Int64, "t": pl.String}), from_records([]).rejects)
    for each in (source, replace(source, cdc="debezium", preproc=(), where=None)):
        found = prepare(nothing, each, STREAM)
        assert found.frame.is_empty()
        assert found.rejects.is_empty()


def test_what_is_referred_to_may_be_the_text_of_bytes_or_of_infinity() -> None:
    into = dataset(f=float, b=bytes, t=datetime)
    source = feed(preproc={"f": ReferenceColumn(("x",)), "b": ReferenceColumn(("nest", "y"))})
    rows = [
        {"x": "-Infinity", "nest": {"y": "AP8="}, "t": "2024-01-01"},
        {"x": 1.5, "nest": {"y": "!"}, "t": "2024-01-01"},
    ]
    found = taken(rows, source, into)
    assert found.frame.select("f", "b").rows() == [(float("-inf"), b"\x00\xff")]
    assert found.rejects["field"].to_list() == ["b"]


KEYED = dataset(("a",), a=int, b=str, t=datetime)


def test_a_deletion_needs_no_columns_but_the_keys() -> None:
    """A table may have lost the others."""
    raw = Raw(pl.DataFrame({"a": [1]}), rejects({}), {0: day(2)})
    found = prepare(raw, feed("native"), KEYED)
    assert found.frame.select("a", "b", "_at", "_weight").rows() == [(1, None, day(2), -1)]
    without = prepare(Raw(pl.DataFrame({"b": ["x"]}), rejects({}), {0: day(2)}), feed("native"), KEYED)
    assert (without.frame.height, without.rejects["field"].to_list()) == (0, ["a"])


@pytest.mark.parametrize("columns", [{}, {"a": [1, None], "b": ["x", None], "t": [day(1), None]}])
def test_a_truncation_passes_all_conditions(columns: dict[str, Any]) -> None:
    """Also where its rows come without columns."""
    height = len(columns.get("a", [None]))
    frame = pl.DataFrame(columns) if columns else pl.DataFrame(height=1)
    raw = Raw(frame, rejects({}), truncations={height - 1: day(3)})
    source = feed("native", where=by(lambda rows: rows["b"] == "x", b=str), sample=Sampling(1 / (1 << 20), ("a",)))
    found = prepare(raw, source, replace(KEYED, sources=(source,)))
    assert found.frame.select("a", "b", "_at", "_weight").rows()[-1] == (None, None, day(3), TRUNCATION)
    assert (found.accepted.to_list()[-1], found.rejects.height) == (height - 1, 0)
    two = prepare(raw, source, replace(KEYED, sources=(source, source)))
    assert "the dataset also has rows from elsewhere" in two.rejects["reason"][0]


SPARSE = dataset(a=int, nick=Optional[str], t=datetime)
ALIAS = {"nick": ReferenceColumn(("alias",))}


def test_a_copied_member_that_no_object_has_is_null_as_beside_one_that_has_it() -> None:
    """Otherwise the outcome of an object would depend on those that it is read with."""
    lines = JsonLines(requested(source := feed(preproc=ALIAS), SPARSE), exact=False)
    without, with_it = b'{"a": 1, "t": 1}', b'{"a": 2, "t": 1, "alias": "x"}'
    for group in ([without], [without, with_it]):
        (raw,) = lines.texts(group)
        found = prepare(raw, source, SPARSE)
        assert found.rejects.rows() == []
        assert found.frame["nick"].to_list() == [None, "x"][: len(group)]
    (raw,) = lines.texts([without])
    strict = prepare(raw, feed(preproc={"b": ReferenceColumn(("alias",))}), STREAM)
    assert strict.rejects["reason"].to_list() == ["null, and str is not Optional"]


def test_of_a_record_that_is_no_row_its_columns_are_not_missed_too() -> None:
    """Each tombstone behind a deletion was a dead letter, of a dataset that copies a column."""
    source = feed("debezium", preproc=ALIAS)
    raw = Raw(pl.DataFrame(height=2), rejects({0: TOMBSTONE, 1: "no JSON"}))
    keyed = dataset(keys=("a",), a=int, nick=Optional[str], t=datetime)
    assert prepare(raw, source, keyed).rejects["reason"].to_list() == ["no JSON"]
    assert prepare(raw, feed("upsert", preproc=ALIAS), keyed).rejects["reason"].to_list() == [TOMBSTONE, "no JSON"]
