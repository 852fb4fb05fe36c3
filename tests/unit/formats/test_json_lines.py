"""JSON lines: what a row means does not depend on the rows beside it."""

from __future__ import annotations

import decimal
import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from umbel.formats import json_lines
from umbel.formats.json_lines import GROUP, JsonLines
from umbel.types.dtypes import Datetime, Decimal, DType, Int, List, Optional, Str

AT = Datetime()
NUMBERS = ["1760000000153", "1760000000", "1760000000153000000", "0", "-5000", "-0", "null"]
OTHERS = ['"2025-10-09T08:53:20Z"', '"1760000000"', "1760000000.5", "1e9", "18446744073709551615", "true", "[1]", '"x"']


def _read(lines: list[str], name: str = "at") -> list[tuple[datetime | None, bool]]:
    """Return the instant of each line, and whether it was rejected."""
    reader, found = JsonLines({"name": Str(), name: AT}, exact=True), list[tuple[datetime | None, bool]]()
    for raw in reader.read("\n".join(lines).encode()):
        checked = AT.ingest(raw.frame[name])
        found += [(value, row in checked.errors) for row, value in enumerate(checked.values.to_list())]
    return found


@pytest.mark.parametrize("pair", [*itertools.permutations([*NUMBERS, *OTHERS], 2)], ids=" ".join)
def test_an_instant_is_read_alike_whatever_stands_before_it(pair: tuple[str, str]) -> None:
    first, second = (f'{{"name": "a \\"at\\": 1", "at": {each}}}' for each in pair)
    assert _read([first, second]) == [*_read([first]), *_read([second])]


def test_numbers_and_texts_may_change_between_groups_of_lines() -> None:
    number, text, bad = '{"name": "a", "at": 5}', '{"name": "a", "at": "1970-01-01T00:00:05Z"}', '{"name": "a"'
    lines = [*[number] * GROUP, *[text] * GROUP, *[number, text] * (GROUP // 2)]
    assert _read(lines) == [(datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), False)] * len(lines)
    assert [value is None for value, _ in _read([*lines, bad, number])] == [*[False] * len(lines), True, False]


@pytest.mark.parametrize("other", ['["x"]', "[1]", "null"])
def test_a_nan_without_a_type_is_null_in_texts_whatever_stands_beside_it(other: str) -> None:
    dtype, lines = List(Optional(Str())), ['{"v": ["\\u0000NaN", "NaN", "\\u0000"]}', f'{{"v": {other}}}']
    (raw,) = JsonLines({"v": dtype}, exact=True).read("\n".join(lines).encode())
    assert dtype.ingest(raw.frame["v"]).values[0].to_list() == [None, "NaN", "\0"]


def test_the_name_of_a_column_may_be_any_text() -> None:
    for name in ("a.b", "(", "ä", "at|x"):
        assert _read([f'{{"name": "a", "{name}": 5}}'], name) == [(datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), False)]


@pytest.mark.parametrize("texts", [True, False], ids=["of texts", "of a chunk"])
def test_objects_of_different_names_take_memory_in_proportion_to_them(
    texts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "MOST_VALUES", 1000)
    lines = [b'{"own%d": %d, "x": %d}' % (row, row, row) for row in range(300)]
    lines[70], lines[170] = b'{"x": ', b"7"
    reader = JsonLines({"x": Optional(Int())}, exact=False)
    found = list(reader.texts(lines) if texts else reader.read(b"\n".join(lines)))
    assert sum(raw.frame.height * raw.frame.width for raw in found) < 300 * 100
    firsts = [0, *itertools.accumulate(raw.frame.height for raw in found)]
    rejected = [first + row for first, raw in zip(firsts, found, strict=False) for row in raw.rejects["row"]]
    assert rejected == [70, 170]
    values = [value for raw in found for value in raw.frame["x"].to_list()]
    assert values == [None if row in rejected else row for row in range(300)]
    assert found[-1].frame["own299"].to_list()[-1] == 299


def test_rows_read_one_by_one_are_not_read_whole_for_some_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = list[int]()
    records = json_lines.from_records
    monkeypatch.setattr(
        json_lines, "from_records", lambda *a, **k: (raw := records(*a, **k), widths.append(raw.frame.width))[0]
    )
    lines = b"".join(b'{"own%d": 1, "x": %d, "s": "\\ud83d\\ude00"}\n' % (row, row) for row in range(100))
    (raw,) = JsonLines({"x": Int(), "s": Str()}, exact=True).read(lines)
    assert (raw.frame["x"].to_list(), raw.frame["s"][0], widths) == ([*range(100)], "😀", [2])


@pytest.mark.parametrize(
    ("dtype", "value"), [(Decimal(2), decimal.Decimal("1.50")), (Datetime(), datetime(2026, 1, 1, tzinfo=UTC))]
)
@pytest.mark.parametrize("first", [b'{"x": null}', b'{"x" :  null}', b'{"y": 1}', b"{}"])
def test_numbers_behind_rows_without_one_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch, dtype: DType, value: Any, first: bytes
) -> None:
    monkeypatch.delattr(JsonLines, "_parsed")
    number = b'{"x": 1.5}' if dtype == Decimal(2) else b'{"x": 1767225600}'
    lines = [first, *[number] * 3, first]
    (raw,) = JsonLines({"x": Optional(dtype)}, exact=True).read(b"\n".join(lines))
    assert Optional(dtype).ingest(raw.frame["x"]).values.to_list() == [None, value, value, value, None]
