"""Lines of which some are read one by one: the rows are those of each alone, in a number of frames that stays small."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from umbel.formats.json_lines import GROUP, SHORT, JsonLines
from umbel.types.dtypes import Decimal, Dict, Int, List, Optional, Str
from umbel.types.raw import Raw

COLUMNS = {"x": Int(), "s": Str()}
GOOD, BAD, ESCAPED = b'{"x": 5, "s": "a"}', b'{"x": 5, "s": "a"', b'{"x": 5, "s": "\\ud83d\\ude00"}'
FAST, SLOW = [GOOD] * GROUP, [BAD, *[GOOD] * (GROUP - 1)]


def _rows(found: list[Raw]) -> list[Any]:
    rows = list[Any]()
    for raw in found:
        refused = set(raw.rejects["row"])
        rows += [None if row in refused else values for row, values in enumerate(raw.frame.iter_rows())]
    return rows


@pytest.mark.parametrize(
    ("groups", "frames"),
    [
        ([SLOW, FAST] * 20, 1),
        ([FAST, SLOW] * 20, 1),
        ([SLOW] * 5 + [FAST] * SHORT + [SLOW] * 5, 3),
        ([FAST] * SHORT + [SLOW] + [FAST] * (SHORT - 1), 2),
        ([FAST] * (SHORT - 1) + [SLOW] + [FAST] * SHORT, 2),
        ([FAST] * 3 + [SLOW, [GOOD]], 1),
    ],
)
def test_groups_that_are_read_one_by_one_share_a_frame(groups: list[list[bytes]], frames: int) -> None:
    lines = [line for group in groups for line in group]
    reader = JsonLines(COLUMNS, exact=True)
    for found in (list(reader.read(b"\n".join(lines))), list(reader.texts(lines))):
        assert _rows(found) == [None if line == BAD else (5, "a") for line in lines]
        assert len(found) == frames


def test_numbers_and_texts_in_turn_are_frames_of_their_own() -> None:
    decimals = JsonLines({"x": Decimal(1)}, exact=True)
    lines = [b'{"x": 5.5}'] * GROUP * SHORT + [b'{"x": "5.5"}'] * GROUP * SHORT + [b'{"x": 5.5}'] * GROUP * SHORT
    found = list(decimals.read(b"\n".join(lines)))
    assert [raw.frame.height for raw in found] == [GROUP * SHORT] * 3
    assert [str(each) for raw in found for each in Decimal(1).ingest(raw.frame["x"]).values] == ["5.5"] * len(lines)


@pytest.mark.parametrize("lines", [3, 300])
def test_unusual_texts_beside_plain_ones(lines: int) -> None:
    reader = JsonLines({"i": Optional(Int()), "s": Optional(Str())}, exact=False)
    texts = [b'{"i": 1, "s": "a"}'] * lines
    texts[1] = b'{"i": 123456789012345678901234567890, "s": "\\u0000NaN"}'
    (raw,) = reader.texts(texts)
    assert raw.frame["i"][1] == 123456789012345678901234567890
    checked = Optional(Str()).ingest(raw.frame["s"])
    assert (checked.values.to_list()[:3], checked.errors) == (["a", None, "a"], {})


DICTIONARIES = [
    '{"b": 1, "a": 2}',
    "{}",
    "null",
    '[["b", 1], ["a", 2]]',
    '[{"key": "b", "value": 1}]',
    '{"a": "x"}',
    "7",
]


def test_dictionaries_mean_the_same_beside_each_other_and_alone() -> None:
    dtype = Optional(Dict(Int()))
    lines = [f'{{"d": {each}}}'.encode() for each in DICTIONARIES]
    alone = [dtype.ingest(JsonLines({"d": dtype}, exact=True).whole([line]).frame["d"]) for line in lines]
    together = dtype.ingest(JsonLines({"d": dtype}, exact=True).whole(lines).frame["d"])
    assert together.values.to_list() == [each.values.to_list()[0] for each in alone]
    assert {*together.errors} == {row for row, each in enumerate(alone) if each.errors} == {5, 6}
    plain = dtype.ingest(JsonLines({"d": dtype}, exact=True).whole(lines[:3]).frame["d"])
    assert plain.values.to_list() == together.values.to_list()[:3]


def test_lists_mean_the_same_beside_each_other_and_alone() -> None:
    dtype = Optional(List(Optional(Int())))
    values = [[1, None], [], None, (3,), "x", [["y"]]]
    together = dtype.ingest(values)
    alone = [dtype.ingest([value]) for value in values]
    assert (
        together.values.to_list()
        == [each.values.to_list()[0] for each in alone]
        == [[1, None], [], None, [3], None, [None]]
    )
    assert {*together.errors} == {row for row, each in enumerate(alone) if each.errors} == {4, 5}
    assert dtype.ingest(values[:3]).values.to_list() == values[:3]


def test_the_garbage_collector_goes_on_whatever_was_read() -> None:
    reader = JsonLines({"x": Int()}, exact=False)
    for data in (b'{"x": 1}', b'{"x": ', b"[" * 2000):
        list(reader.read(data))
        assert gc.isenabled()
    gc.disable()
    try:
        list(reader.read(b'{"x": 1}'))
        assert not gc.isenabled()
    finally:
        gc.enable()
