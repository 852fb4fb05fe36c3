"""The laws of the transformation: the plan gives what Python gives, record by record."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from tests.laws.transform_code import CodeMaker, RecordMaker
from tests.laws.transform_menu import CODES, PATHS, RAW, STEPS, VALUES, batches, configurations
from tests.profiles import examples
from umbel.errors import UmbelError
from umbel.transform.batches import BatchTransform
from umbel.transform.configuration import loads
from umbel.transform.parts import Letter
from umbel.transform.record_lines import RecordLines
from umbel.transform.values import BadRecord, dump, parse


def check(text: str, lines: list[bytes]) -> None:
    transform = BatchTransform(loads(text))
    expected = transform.record_by_record(lines)
    with patch("umbel.transform.record_lines.PIECE_BYTES", 30):
        pieces = RecordLines(b"\n".join(lines))
        assert sum(map(len, pieces.pieces)) == len(lines)
    for batch in (lines, lines, pieces):  # with a plan made of these records, with it again, and decoded in pieces
        found = transform(batch)
        assert found.data == expected.data
        assert list(map(without_line, found.letters)) == list(map(without_line, expected.letters))
        assert (found.records, found.written, found.dropped, found.nulls) == (
            expected.records,
            expected.written,
            expected.dropped,
            expected.nulls,
        )


def without_line(letter: Letter) -> Letter:
    """Leave out a line that Python 3.11 tells differently once code has run some times."""
    return replace(letter, at="") if letter.error == "UnboundLocalError" else letter


@given(configurations(), batches())
def test_the_plan_equals_record_by_record(text: str, lines: list[bytes]) -> None:
    check(text, lines)


@pytest.mark.parametrize("code", CODES)
@examples(25)
@given(st.sampled_from(PATHS), batches())
def test_code_equals_python(code: str, path: str, lines: list[bytes]) -> None:
    check(
        json.dumps(
            {"source_field": path, "target_field": "t", "transformations": [{"name": "custom_code", "code": code}]}
        ),
        lines,
    )


VALUES_OF_CODE: dict[str, list[Any]] = {
    "t": [
        "",
        "Dark_Mode",
        " x ",
        "a,b,c",
        "12",
        "-7",
        "007",
        "1.50",
        "1e5",
        "nan",
        "true",
        "İ",
        "ß",
        "\x1f x\x85",
        "a\nb",
        "٣",
        "1_000",
        " 12",
        "+5",
        "9" * 19,
        "$1",
        "\\1",
        "é",
        "\x00",
        "-0",
        "-0.0",
        "12345678901234567",
        "😀a",
        "a" * 300,
    ],
    "i": [0, 1, 2, 3, -1, -7, 12, 100, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**63, 10**30],
    "f": [0.0, -0.0, 1.5, 2.0, 0.1, -3.25, 1e15, 1e16, 1e22, 1e-7, 1e300, 5e-324, math.nan, math.inf],
    "b": [False, True],
}


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@examples(300)
@given(st.integers(0, 2**32))
def test_generated_code_equals_python(seed: int) -> None:
    records = RecordMaker(seed, VALUES_OF_CODE)
    source = records.chance.choice(["a", "a", "b", "c", "$", "a.b"])
    kinds = {**records.readable, **({"source_field": records.kinds[source]} if source in records.kinds else {})}
    code = CodeMaker(seed).body(kinds)
    step = {"name": records.chance.choice(["custom_code"] * 9 + ["filter"]), "code": code}
    try:
        text = json.dumps({"source_field": source, "target_field": "t", "transformations": [step]})
        loads(text)
    except UmbelError:
        assume(False)  # a name is read before `:=`, for example
    note(code)
    check(text, records.lines())


@pytest.mark.parametrize("step", STEPS, ids=str)
@examples(25)
@given(st.sampled_from(PATHS), batches())
def test_each_step_equals_its_definition(step: dict[str, Any], path: str, lines: list[bytes]) -> None:
    check(json.dumps({"source_field": path, "target_field": "t", "transformations": [step]}), lines)


@given(batches(), batches())
def test_a_plan_made_for_other_records_changes_nothing(lines: list[bytes], others: list[bytes]) -> None:
    text = json.dumps(
        {"source_field": "a", "target_field": "t", "transformations": [{"name": "lower", "on_error": "null"}]}
    )
    copies = ({"source_field": each, "target_field": f"u.{each[0]}"} for each in ("b", "c.a"))
    transform = BatchTransform(loads("\n---\n".join([text, *map(json.dumps, copies)])))
    transform(others)
    assert transform(lines).data == transform.record_by_record(lines).data


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_records_are_read_as_python_reads_them(record: dict[str, Any]) -> None:
    for text in (json.dumps(record), json.dumps(record, indent=1)):
        assert same(parse(text.encode()), json.loads(text))
    assert same(json.loads(dump(record)), record)


@given(RAW)
def test_what_python_cannot_read_is_no_record(line: bytes) -> None:
    try:
        expected = json.loads(line.decode())
    except ValueError:
        expected = None
    if type(expected) is dict:
        assert same(parse(line), expected)
    else:
        with pytest.raises(BadRecord):
            parse(line)


def same(found: Any, expected: Any) -> bool:
    if type(found) is not type(expected):
        return False
    if isinstance(found, dict):
        return list(found) == list(expected) and all(same(found[name], expected[name]) for name in found)
    if isinstance(found, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(found, float):
        return (math.isnan(found) and math.isnan(expected)) or (found, math.copysign(1, found)) == (
            expected,
            math.copysign(1, expected),
        )
    return bool(found == expected)
