"""Lines in one piece: only where each line is one object are they decoded at once."""

from __future__ import annotations

import pytest

from umbel.transform.batches import BatchTransform
from umbel.transform.configuration import loads
from umbel.transform.parts import Lines
from umbel.transform.record_lines import RecordLines
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
