"""Lines in one piece: only where each line is one object are they decoded at once."""

from __future__ import annotations

import json

import pytest

from umbel.transform.batches import BatchTransform
from umbel.transform.configuration import loads
from umbel.transform.parts import Lines
from umbel.transform.record_lines import MOST_DIGITS, RecordLines
from umbel.transform.work import transformed

OBJECTS = [b'{"a":1}\n{"a":2}\n', b'{"a":1}\n{"a":2}']
OTHERS = [
    b"",
    b"\n",
    b'{"a":1}\n\n{"a":2}\n',
    b'{"a":1}\r\n{"a":2}\r\n',
    b' {"a":1}\n{"a":2}\n',
    b'{"a":1}\n{"a":2} \n',
    b'{"a":1}{"b":2}\n{"c":\n{}}\n',
    b'{"a":[\n{"a":2}]}\n{"a":3}{"a":4}\n',
    b'{"a":1}\n7\n{"a":2}\n',
    b"\xef\xbb\xbf" + b'{"a":1}\n',
]


@pytest.mark.parametrize("data", OBJECTS)
def test_lines_of_objects(data: bytes) -> None:
    assert RecordLines(data).objects == 2


@pytest.mark.parametrize("data", OTHERS)
def test_other_lines_are_cut_apart(data: bytes) -> None:
    assert RecordLines(data).objects == 0


@pytest.mark.parametrize("data", [*OBJECTS, *OTHERS, b'{"a":"' + b"x" * 50 + b'"}\n{"a":1}\n{"a":2}'])
def test_pieces_have_the_lines_of_the_whole(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = RecordLines(data)
    monkeypatch.setattr("umbel.transform.record_lines.PIECE_BYTES", 7)
    found = RecordLines(data)
    assert [line for each in found.pieces for line in each.cut] == found.cut == expected.cut
    assert (found.objects, len(found)) == (expected.objects, len(expected))
    assert found.has_blank_lines == any(not line.strip() for line in expected.cut)
    assert [found.line(row) for row in range(len(found))] == expected.cut


@pytest.mark.parametrize(
    "data",
    [
        *OBJECTS,
        *OTHERS,
        b'{"a":1}{"a":2}\n{"a":3}\n',
        b'{"a":1}\n{"a":}\n',
        b'{"a":"\xff"}\n{"a":1}\n',
        b'{"a":"x\\ud800"}\n{"a":"y"}\n',
        b'{"a":1}\n{"a":NaN}\n{"a":1e999}\n{"a":18446744073709551616}\n',
        b'{"x":{"y":}\n{"a":2}\n',
        b'{"z":' + b"9" * 4300 + b'}\n{"a":1}\n',
        b'{"a":1}\n{"z":' + b"9" * 4301 + b'}\n{"a":1}\n',
        b'{"a":1}\n{"z":"' + b"9" * 9000 + b'"}\n{"a":' + b"9" * 4301 + b"}\n",
        b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}\n" + b'{"a":1}\n',
    ],
)
@pytest.mark.parametrize("head", ["", "passthrough: true\n---\n"])
def test_damaged_lines_cost_no_other(data: bytes, head: str) -> None:
    transform = BatchTransform(loads(f"{head}source_field: a\ntarget_field: b"))
    transform.record_by_record([])
    transform([b'{"a":1}'])
    found = transformed(transform, Lines("in", data))
    lines = [(number, line) for number, line in enumerate(data.split(b"\n")) if line.strip()]
    expected = transform.record_by_record([line for _, line in lines])
    assert found.data == expected.data
    assert [each.row for each in found.letters] == [lines[each.row][0] for each in expected.letters]
    assert found.records == len(lines)


@pytest.mark.parametrize("before", [0, 1, MOST_DIGITS // 8 - 1, 1000, 5000])
def test_numbers_that_python_does_not_read_are_found(before: int) -> None:
    for size in (MOST_DIGITS + 1, MOST_DIGITS * 3):
        data = b'{"a":"' + b"x" * before + b'","z":' + b"1" * size + b"}\n"
        assert RecordLines(data).may_have_long_numbers
    assert not RecordLines(b'{"a":1}\n' * 5000).may_have_long_numbers


@pytest.mark.parametrize("name", ["a\\b", "a\nb", 'a"b', "\ud800", "", "\x00"])
@pytest.mark.parametrize("code", [False, True])
def test_names_with_characters_that_json_escapes(name: str, code: bool) -> None:
    steps = [{"name": "custom_code", "code": f"return source_field.get({name!r}).lower()"}]
    document = {"source_field": "o", "target_field": "t", "transformations": steps}
    if not code:
        if '"' in name or not name or not name.isprintable():
            return
        document = {"source_field": f'o["{name}"]', "target_field": f'["{name}"]'}
    transform = BatchTransform(loads(json.dumps(document)))
    lines = [json.dumps({"o": {name: each}}).encode() for each in ("X", "Y", None, 7)]
    result = transform(lines)
    assert result.data == transform.record_by_record(lines).data
    assert result.one_by_one < len(lines) or name == "\ud800"
    assert result.written == (2 if code else 4)


def test_objects_that_are_missing_after_a_batch_that_has_all() -> None:
    transform = BatchTransform(loads("source_field: a.b\ntarget_field: x\n---\nsource_field: a.c\ntarget_field: y"))
    whole = [b'{"a":{"b":1,"c":"u"}}'] * 3
    other = [b'{"a":{"b":2,"c":"v"}}', b'{"a":null}', b"{}", b'{"a":7}', b'{"a":{"b":3}}']
    for lines in (whole, other, whole):
        assert transform(lines).data == transform.record_by_record(lines).data


def test_formats_of_one_field_are_checked_each() -> None:
    formats = ("%Y %m-%d %H:%M", "%Y %H-%d %m:%M")  # the second reads month 2, day 30
    documents = [
        {
            "source_field": "a",
            "target_field": f"t{each[4]}",
            "transformations": [{"name": "parse_datetime", "format": each}],
        }
        for each in formats
    ]
    transform = BatchTransform(loads("\n---\n".join(map(json.dumps, documents))))
    transform([b'{"a":"2024 01-02 03:04"}'])
    result = transform([b'{"a":"2024 01-30 02:00"}', b'{"a":"2024 01-03 02:00"}'])
    assert [each.row for each in result.letters] == [0]
