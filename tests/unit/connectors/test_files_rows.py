"""Rows of text files: the outcome of a row does not depend on those beside it, and none is lost."""

from __future__ import annotations

import csv
import gzip
import io
import json
from codecs import BOM_UTF8
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.unit.connectors.reading import read
from umbel.connectors import file_source
from umbel.connectors.files import Files
from umbel.errors import InvalidValue
from umbel.formats import chunks, delimited
from umbel.formats.declarations import CSV
from umbel.formats.delimited import Delimited
from umbel.types.dtype import DType
from umbel.types.dtypes import (
    Bool,
    Bytes,
    Date,
    Datetime,
    Decimal,
    Dict,
    Embedding,
    Float,
    Int,
    List,
    Optional,
    Str,
    Struct,
)

SCHEMA: dict[str, DType] = {
    "i": Optional(Int()),
    "f": Optional(Float()),
    "s": Optional(Str()),
    "b": Optional(Bool()),
    "t": Optional(Datetime()),
    "d": Optional(Date()),
    "l": Optional(List(Optional(Int()))),
    "ls": Optional(List(Str())),
    "e": Optional(Embedding(2)),
    "st": Optional(Struct("P", (("x", Int()), ("y", Optional(Str())), ("t", Optional(Datetime()))))),
}
SLOW: dict[str, DType] = {"c": Optional(Decimal(2)), "m": Optional(Dict(Int()))}

NUMBERS = st.sampled_from(
    ["0", "1", "-7", "2.0", "1.5", "1e3", "1e400", "-0", "9223372036854775807", "9223372036854775808", "1" * 30, "NaN"]
)
INSTANTS = st.sampled_from(
    ['"2013-01-01T00:00:00Z"', '"2013-01-01"', "1357000000", "1357000000.5", '"soon"', '"1357000000"']
)
TEXTS = st.sampled_from(['"x"', '""', '"ü"', '"3"', '"\\ud83d\\ude00"', '"\\ud800"', '"a\\u0000"', '"},{"', '"true"'])
OTHERS = st.sampled_from(
    ["null", "true", "false", "[]", "{}", '[1,"x"]', "[null]", "[1.0]", "[1,2]", '["x"]', "[true]", "tru"]
)
STRUCTS = st.sampled_from(
    ['{"x":1}', '{"x":"1","y":2}', '{"x":1,"y":"q","t":"2013-01-01"}', '{"y":"q"}', '{"x":1,"t":5}']
)
ANY = NUMBERS | TEXTS | OTHERS | STRUCTS | INSTANTS
FITTING = {
    "i": st.sampled_from(["1", "-5", "null"]),
    "f": st.sampled_from(["1", "2.5", "null"]),
    "s": st.sampled_from(['"x"', '"ü"', "null"]),
    "b": st.sampled_from(["true", "false"]),
    "t": st.just('"2013-01-01T00:00:00Z"'),
    "d": st.just('"2013-01-01"'),
    "l": st.sampled_from(["[1,null]", "[]"]),
    "ls": st.sampled_from(['["x"]', "[]"]),
    "e": st.just("[1,2.5]"),
    "st": st.sampled_from(['{"x":1,"y":"q"}', "null"]),
}
FIELDS = st.sampled_from(sorted(SCHEMA)).flatmap(lambda name: st.tuples(st.just(name), FITTING[name]))
ODD_FIELDS = st.tuples(st.sampled_from([*SCHEMA, "unknown"]), ANY)


def row(fields: list[tuple[str, str]]) -> bytes:
    return ("{" + ", ".join(f'"{name}" : {value}' for name, value in dict(fields).items()) + "}").encode()


GOOD_ROWS = st.lists(FIELDS, max_size=5).map(row)
ODD_ROWS = st.lists(FIELDS | ODD_FIELDS, max_size=4).map(row)
NO_ROWS = st.sampled_from(
    [b"[1]", b"5", b"null", b'{"i":1', b'{"i":1}}', b'{"s":"\xff"}', b"\xff", b'{"i":1} {"i":2}', b'"x"']
)
BLANK = st.sampled_from([b"", b"  ", b"\r"])
JSON_LINES = st.lists(GOOD_ROWS | GOOD_ROWS | ODD_ROWS | NO_ROWS | BLANK, max_size=30)


def outcome(folder: Path, data: bytes, form: Any, schema: dict[str, DType], *, exact: bool = True) -> list[Any]:
    """Return what becomes of each row of a file, in order: its values, or where it was refused and why."""
    (folder / "a").write_bytes(data)
    found = read(Files(name="f", folder=str(folder)).path("a", form).reader(folder), schema, exact=exact)
    rows = {number: tuple(values.values()) for number, values in found.rows.items()}
    dead = {number: (reason.partition(":")[0], text) for number, (_, reason, text) in found.dead.items()}
    return [value for _, value in sorted({**rows, **dead}.items())]


@given(JSON_LINES, st.booleans())
@examples(50)
def test_the_outcome_of_a_line_of_json_is_its_own(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], exact: bool
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    alone = [each for line in lines for each in outcome(folder, line, "json", SCHEMA)]
    together = outcome(folder, b"\n".join(lines), "json", SCHEMA, exact=exact)
    assert repr(together) == repr(alone)
    assert len(together) == sum(bool(line.strip()) for line in lines)


@given(st.lists(st.tuples(st.sampled_from(["c", "m"]), ANY).map(lambda field: row([field])), max_size=12))
@examples(60)
def test_types_that_json_does_not_have(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("rows")
    alone = [each for line in lines for each in outcome(folder, line, "json", SLOW)]
    assert repr(outcome(folder, b"\n".join(lines), "json", SLOW)) == repr(alone)


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ("1", 1),
        ('"1"', 1),
        ("1.0", 1),
        ("1.5", None),
        ("true", 1),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ('"x"', None),
        ("[]", None),
    ],
)
@pytest.mark.parametrize("beside", [b"", b'{"i":5}\n' * 3, b"broken\n"])
def test_integers(tmp_path: Path, value: str, taken: int | None, beside: bytes) -> None:
    (*_, found) = outcome(tmp_path, beside + b'{"i":%s}' % value.encode(), "json", {"i": Int()})
    assert found == (taken,) if taken is not None else found[0] == "i"


def test_a_wrong_value_names_its_field_and_nothing_else_is_lost(tmp_path: Path) -> None:
    data = b"".join(b'{"i":%d,"s":"x"}\n' % n if n != 700 else b'{"i":"seven","s":"x"}\n' for n in range(3000))
    found = outcome(tmp_path, data, "json", {"i": Int(), "s": Str()})
    assert len(found) == 3000
    assert found[700] == ("i", b'{"i":"seven","s":"x"}')
    assert [value for n, value in enumerate(found) if n != 700] == [(n, "x") for n in range(3000) if n != 700]


def test_undeclared_columns_come_along_on_request(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"i":1,"z":{"q":[1]}}\n{"i":2}\n')
    reading = Files(name="f", folder=str(tmp_path)).path("a").reader(tmp_path)
    ((split, _),), _ = reading.plan(None, 1 << 30)
    (batch,) = reading.open(split, {"i": Int(), "s": Optional(Str())}, exact=False)
    assert set(batch.raw.frame.columns) == {"i", "s", "z"}
    assert batch.raw.frame["z"].to_list() == [{"q": [1]}, None]


# ---- delimited

VALUES = st.sampled_from(["1", "", "x", "a b", "ü", "a,b", 'say "x"', "two\nlines", '"', " 3 ", "a\r\nb"])
WRITTEN = st.lists(VALUES, min_size=3, max_size=3)
THREE = {"i": Optional(Str()), "f": Optional(Str()), "s": Optional(Str())}


def written(rows: list[list[str]], delimiter: str = ",", ending: str = "\n") -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=ending, quoting=csv.QUOTE_MINIMAL).writerows(rows)
    return out.getvalue().encode()


@given(st.lists(WRITTEN, max_size=20), st.sampled_from(",;|\t"), st.sampled_from(["\n", "\r\n"]), st.integers(5, 80))
@examples(60)
def test_what_a_csv_writer_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], delimiter: str, ending: str, size: int
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "a").write_bytes(written([list(THREE), *rows], delimiter, ending))
    connector = Files(name="f", folder=str(folder)).path("a", CSV(delimiter=delimiter))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", size)
        patch.setattr(delimited, "CHUNK_BYTES", size)
        for split_bytes in (size, 1 << 30):
            found = read(replace(connector.reader(folder), split_bytes=split_bytes), THREE)
            assert found.dead == {}
            assert found.values() == [tuple(value or None for value in row) for row in rows]


ODD_RECORDS = st.sampled_from([b"1,2", b"1,2,3,4", b'1,2,"x', b"\xff,2,3", b'1,2,x"y', b'1,2,"x"y"', b"1", b'"', b",,"])
GOOD_RECORDS = st.lists(VALUES, min_size=3, max_size=3).map(lambda row: written([row], ending="").strip(b"\n"))


@given(st.lists(GOOD_RECORDS | ODD_RECORDS, max_size=15))
@examples(60)
def test_the_outcome_of_a_record_is_its_own(tmp_path_factory: pytest.TempPathFactory, records: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("rows")
    form = CSV(headers=list(THREE))
    data = b"\n".join(records)
    apart = Delimited(tuple(THREE), form.delimiter).records(data)
    alone = [each for record in apart for each in outcome(folder, record, form, THREE)]
    assert repr(outcome(folder, data, form, THREE)) == repr(alone)
    assert b"".join(data.split()) == b"".join(b"".join(apart).split())


def test_a_quote_that_is_never_closed_costs_its_line(tmp_path: Path) -> None:
    data = b'1,a,x\n2,"a,x\n' + b"".join(b"%d,b,x\n" % n for n in range(3, 5000))
    found = outcome(tmp_path, data, CSV(headers=list(THREE)), THREE)
    assert found[1] == ("a quote that is not closed", b'2,"a,x')
    assert [value[0] for n, value in enumerate(found) if n != 1] == [str(n) for n in range(1, 5000) if n != 2]


@pytest.mark.parametrize("data", [b"i,f,s\r1,2,3\r4,5,6", b"i,f,s\r1,2,3\r", b"i,f,s\r1,2,3\n4,5,6\n"])
def test_a_file_whose_lines_end_in_carriage_returns_is_a_dead_letter(tmp_path: Path, data: bytes) -> None:
    """All of it was taken for the header: no row, and no word about it."""
    ((reason, raw),) = outcome(tmp_path, data, CSV(), THREE)
    assert "carriage return" in reason
    assert raw.startswith(b"i,f,s\r1")


def test_headers_come_from_the_file_or_the_declaration(tmp_path: Path) -> None:
    assert outcome(tmp_path, b'"f",s,i,more\n1,2,3,4\n', CSV(), THREE) == [("3", "1", "2")]
    assert outcome(tmp_path, b"f,s,i\n", CSV(headers=["f", "s", "i"]), THREE) == [("i", "f", "s")]
    assert outcome(tmp_path, b"\n\nf;f;i\n1;2;3\n", CSV(delimiter=";"), THREE) == [("3", "1", None)]


def test_a_json_text_in_a_column_stays_text(tmp_path: Path) -> None:
    text = json.dumps({"a": [1, 2]})
    assert outcome(tmp_path, written([list(THREE), [text, "", ""]]), CSV(), THREE) == [(text, None, None)]


@pytest.mark.parametrize("beside", [b"", b'{"f":1.5}\n' * 3, b"broken\n"])
def test_texts_stand_for_what_json_does_not_have(tmp_path: Path, beside: bytes) -> None:
    schema = {"f": Optional(Float()), "b": Optional(Bytes()), "l": Optional(List(Bytes()))}
    good = b'{"f":"-Infinity","b":"AP8=","l":["eA=="]}'
    (*_, found) = outcome(tmp_path, beside + good, "json", schema)
    assert found == (float("-inf"), b"\x00\xff", [b"x"])
    (*_, found) = outcome(tmp_path, beside + b'{"b":"no base64!"}', "json", schema)
    assert found[0] == "b"


def test_a_line_of_delimiters_before_the_header_is_not_the_header(tmp_path: Path) -> None:
    assert outcome(tmp_path, b"\t\t\ni\tf\ts\n1\t2\t3\n", CSV(delimiter="\t"), THREE) == [("1", "2", "3")]


def test_variables_of_the_class_are_no_arguments_of_a_format() -> None:
    with pytest.raises(InvalidValue, match="unknown argument"):
        CSV(positional=True)


@pytest.mark.parametrize("header", [b'"i"x,f,s', b'"i,f,s', b"\xef\xbb\xbf", b"i" * 500])
def test_a_file_without_a_readable_header_is_a_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bytes
) -> None:
    """Reading its first batch raised an error, again and again."""
    for module in (chunks, delimited):
        monkeypatch.setattr(module, "MAX_ROW", 400)
        monkeypatch.setattr(module, "CHUNK_BYTES", 64)
    ((reason, raw),) = outcome(tmp_path, header + b"\n1,2,3\n4,5,6\n" * 20, CSV(), THREE)
    assert reason.startswith("the header ")
    assert header.startswith(raw)
    assert raw


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_header_that_cannot_be_read_is_one_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It was one for each piece of the file."""
    monkeypatch.setattr(file_source, "LEAST_SPLIT", 1)
    data = b'"i"x,f,s\n' + b"1,2,3\n" * 50
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    reading = Files(name="f", folder=str(tmp_path)).path(name, CSV()).reader(tmp_path)
    found = read(reading, THREE, budget=100)
    assert (found.rows, [reason[:11] for reason in found.reasons()]) == ({}, ["the header "])


def test_blank_lines_before_the_header_may_be_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 64)
    assert outcome(tmp_path, b"\n" * 200 + b"i,f,s\n1,2,3\n", CSV(), THREE) == [("1", "2", "3")]


@pytest.mark.parametrize("header", [b"i,f,f,f_2,s", b"f,f_1,i,f,s", b"i,f,i,f,s", b"i,f,i_2,i,s"])
def test_columns_of_one_name_stand_beside_each_other(tmp_path: Path, header: bytes) -> None:
    """The first is the column; no new name of another is one that the header has."""
    names = header.decode().split(",")
    row = [str(names.index(name)) for name in names]
    values = tuple(str(names.index(name)) for name in THREE)
    assert outcome(tmp_path, header + b"\n" + ",".join(row).encode(), CSV(), THREE) == [values]


@pytest.mark.parametrize("headers", [None, ["s", "i"]])
@pytest.mark.parametrize("size", [4, 4 << 20])
def test_only_the_beginning_of_a_file_has_a_byte_order_mark(
    tmp_path: Path, headers: list[str] | None, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that began with one lost it where a chunk began, or a row beside them was refused."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", size)
    rows, broken = ["\ufeffa,1", "\ufeffb,2", "\ufeff,3"], "too,many,values"
    text = "\n".join([*(["s,i"] if headers is None else []), "a,0", *rows, broken, *rows])
    (tmp_path / "a.csv").write_bytes(BOM_UTF8 + text.encode())
    found = read(
        Files(name="f", folder=str(tmp_path)).path("*.csv", CSV(headers=headers)).reader(tmp_path),
        {"s": Optional(Str()), "i": Int()},
    )
    values = [("\ufeffa", 1), ("\ufeffb", 2), ("\ufeff", 3)]
    assert found.values() == [("a", 0), *values, *values]
    assert found.reasons() == ["3 fields where 2 are expected"]


@pytest.mark.parametrize(
    "begin", [*chunks.COMPRESSED, b"x\x01\x01", *(gzip.compress(b"{}", mtime=0)[:n] for n in (5, 100))]
)
def test_a_row_that_begins_as_compressed_data_is_refused_alone(tmp_path: Path, begin: bytes) -> None:
    good = b'{"i": 1, "f": 2.0, "s": "a"}\n'
    found = outcome(tmp_path, begin + b"\n" + good * 2, "json", THREE)
    assert found[-2:] == outcome(tmp_path, good * 2, "json", THREE)
    assert all("broken JSON" in reason for reason, _ in found[:-2])
    form = CSV(headers=list(THREE))
    assert outcome(tmp_path, begin + b",2,3\n4,5,6\n", form, THREE)[-1] == ("4", "5", "6")
    assert outcome(tmp_path, begin + b",f,s\n4,5,6\n", CSV(), THREE)[-1] == (None, "5", "6")


def test_a_text_that_begins_as_compressed_data_is_read(tmp_path: Path) -> None:
    assert outcome(tmp_path, b"x\x01,2,3\n", CSV(headers=["s", "f", "i"]), THREE) == [("3", "2", "x\x01")]
