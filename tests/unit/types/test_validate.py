from datetime import UTC, datetime

import polars as pl
import pytest

from umbel.errors import InvalidValue
from umbel.types import dtypes as d
from umbel.types.raw import from_records
from umbel.types.validate import refuse_rejects, validate

SCHEMA = {"uid": d.Int(), "name": d.Optional(d.Str()), "at": d.Datetime()}
AT = datetime(2024, 1, 1, tzinfo=UTC)


def test_good_rows_come_through_in_storage_form():
    frame = pl.DataFrame({"extra": [1, 2], "at": ["2024-01-01", "2024-01-01"], "uid": [1.0, 2.0], "name": ["a", None]})
    found = validate(frame, SCHEMA)
    assert found.frame.schema == {name: dtype.polars() for name, dtype in SCHEMA.items()}
    assert found.frame.rows() == [(1, "a", AT), (2, None, AT)]
    assert found.accepted.to_list() == [0, 1]
    assert found.rejects.is_empty()


def test_bad_rows_are_rejected_with_every_error():
    frame = pl.DataFrame({"uid": [1.5, 2.0, None], "name": ["a", "b", "c"], "at": ["x", "2024-01-01", "2024-01-01"]})
    found = validate(frame, SCHEMA)
    assert found.frame["uid"].to_list() == [2]
    assert found.accepted.to_list() == [1]
    assert found.rejects.rows() == [
        (0, "uid", "expected int, got 1.5 (float)"),
        (0, "at", "expected datetime, got 'x' (str)"),
        (2, "uid", "null, and int is not Optional"),
    ]


def test_a_missing_column_rejects_every_row():
    found = validate(pl.DataFrame({"uid": [1, 2], "at": [AT, AT]}), SCHEMA)
    assert found.frame.is_empty()
    assert found.rejects.rows() == [
        (0, "name", "the column is missing, expected Optional[str]"),
        (1, "name", "the column is missing, expected Optional[str]"),
    ]


def test_no_rows():
    found = validate(pl.DataFrame({"uid": [], "name": [], "at": []}), SCHEMA)
    assert found.frame.schema == {name: dtype.polars() for name, dtype in SCHEMA.items()}
    assert found.rejects.is_empty()


def test_rows_refused_before_are_not_judged_again():
    raw = from_records([{"uid": 1, "at": 0}, "junk", {"uid": "x", "at": 0}], SCHEMA)
    found = validate(raw.frame, SCHEMA, refused=raw.rejects)
    assert found.accepted.to_list() == [0]
    assert found.rejects.rows() == [
        (1, "", "expected an object, got 'junk' (str)"),
        (2, "uid", "expected int, got 'x' (str)"),
    ]


def test_one_error_for_all_rejects():
    frame = pl.DataFrame({"uid": ["x", "y", "1"], "name": ["a", "b", "c"], "at": [AT, AT, None]})
    with pytest.raises(InvalidValue) as caught:
        refuse_rejects(validate(frame, SCHEMA), SCHEMA, "User")
    text = str(caught.value)
    assert text.startswith("Schema validation failed during data insertion to User: ")
    assert "column 'uid' of type int: expected int, got 'x' (str) (row 0 and 1 more)" in text
    assert "column 'at' of type datetime: null, and datetime is not Optional (row 2)" in text


def test_no_error_without_rejects():
    frame = pl.DataFrame({"uid": [1], "name": ["a"], "at": [AT]})
    refuse_rejects(validate(frame, SCHEMA), SCHEMA, "User")


def test_the_error_tells_of_rows_that_are_none():
    raw = from_records([7], SCHEMA)
    with pytest.raises(InvalidValue, match=r"expected an object, got 7 \(int\) \(row 0\)"):
        refuse_rejects(validate(raw.frame, SCHEMA, refused=raw.rejects), SCHEMA, "User")
