"""JSON keys: the last value of a repeated key counts, whatever the lines beside it are."""

from __future__ import annotations

import json
import random
import tracemalloc
from threading import Thread
from typing import Any

import orjson
import pytest

from tests.seeds import seeds
from umbel.formats import json_lines
from umbel.formats.json_keys import LineKeys
from umbel.formats.json_lines import GROUP, JsonLines
from umbel.types.dtype import DType
from umbel.types.dtypes import Float, Int, List, Optional, Str, Struct

FLAT: dict[str, DType] = {"a": Optional(Int()), "an_address_of_mine": Optional(Str()), "b": Optional(Float())}
POINT = Struct("Point", (("x", Optional(Int())), ("y", Optional(Int()))))
NESTED: dict[str, DType] = {"a": Optional(Int()), "p": Optional(POINT), "ps": Optional(List(POINT))}
REGULAR = '{"a": 1, "an_address_of_mine": "x", "b": 1.5}'
REPEATED = [
    '{"a": 1, "a": 2, "an_address_of_mine": "x", "b": 1.5}',
    '{"a": 1, "an_address_of_mine": "x", "a": 2}',
    '{"a": 1, "an_address_of_mine": "x", "b": 1.5, "a": 2}',
    '{"a" : 1, "a"\t: 2}',
    '{"a": 1, "a": null}',
    '{"a": null, "a": 1}',
    '{"a": 1, "\\u0061": 2}',
    '{"a": 1, "z\\"": 3, "\\u0061": 2, "b": 3}',
    '{"an_address_of_mine": "x", "an_address_of_mine": "y"}',
    '{"an_address_of_mine": "\\"a\\": 7", "a": 1, "a": 3, "c": 7}',
    '{"a": 1, "a": 2, "c": 7}',
    '{"a": 1, "a": "2"}',
    '{"b": 1, "b": 2, "extra": {"a": 1}}',
]


def _rows(requested: dict[str, DType], lines: list[str]) -> list[dict[str, Any]]:
    found = list[dict[str, Any]]()
    for raw in JsonLines(requested, exact=True).read("\n".join(lines).encode()):
        columns = {name: dtype.ingest(raw.frame[name]).values.to_list() for name, dtype in requested.items()}
        found += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return found


def _expected(requested: dict[str, DType], line: str) -> dict[str, Any]:
    return {name: orjson.loads(line).get(name) for name in requested}


@pytest.mark.parametrize("line", REPEATED)
@pytest.mark.parametrize("around", [0, 1, 5, GROUP])
def test_the_last_value_of_a_repeated_key_counts(line: str, around: int) -> None:
    lines = [*[REGULAR] * around, line, *[REGULAR] * around]
    expected = [_expected(FLAT, each) for each in lines]
    if line.endswith('"a": "2"}'):
        expected[around]["a"] = 2  # a whole number may be written as text
    assert _rows(FLAT, lines)[around] == expected[around]


@pytest.mark.parametrize(
    "line",
    [
        '{"a": 1, "p": {"x": 1, "x": 2}, "ps": []}',
        '{"a": 1, "p": {"x": 1, "y": 2}, "ps": [{"x": 1, "x": null}]}',
        '{"p": {"x": 1}, "p": {"y": 2}, "ps": [{"x": 1}, {"y": 1, "y": 3}]}',
        '{"ps": [{"x": 1}], "ps": [{"x": 2}, {"x": 3}]}',
    ],
)
def test_the_same_holds_for_fields_of_structs(line: str) -> None:
    regular = '{"a": 1, "p": {"x": 5, "y": 6}, "ps": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}'
    alone, among = _rows(NESTED, [line]), _rows(NESTED, [regular, line, regular])
    assert among == [*_rows(NESTED, [regular]), *alone, *_rows(NESTED, [regular])]
    value = orjson.loads(line)
    full = {"x": None, "y": None}
    assert alone[0]["ps"] == [{**full, **each} for each in value["ps"]]
    assert alone[0]["p"] == ({**full, **value["p"]} if "p" in value else None)


def test_random_lines_are_read_as_one_by_one() -> None:
    rng = random.Random(7)
    values = {"a": ["1", "2", "null"], "an_address_of_mine": ['"x"', '"{\\"a\\": 3}"', "null"], "b": ["1.5", "-2.0"]}
    values |= {"z": ["0"], "dress_of_mine": ["1"]}
    for _ in range(300):
        lines = []
        for _ in range(rng.choice((1, 2, 9))):
            names = rng.choices(list(values), k=rng.choice((2, 3, 5)))
            colon = rng.choice((":", ": ", ":", " :"))
            lines.append("{" + ",".join(f'"{name}"{colon}{rng.choice(values[name])}' for name in names) + "}")
        assert _rows(FLAT, lines) == [_expected(FLAT, line) for line in lines], lines


VALUES = {
    "a": ["1", "1", "1", "null", '"1"', "1.0"],
    "an_address_of_mine": [
        *['"x"'] * 6, '""', "null", "5", "1.5", "true", "{}", "[]", '["y"]', '{"z":"y"}', '{"z":1}', '{"a":"1"}'
    ],
    "b": ["1.5", "1.5", "2", "null", '"1.5"'],
    "z": [*['"u"', "0"] * 3, '"\\"\\""', "null", "{}", '["u"]', '{"z":"u"}', '{"a":2}', '"a:b"', '"u, v"'],
    "": ["0", '"w"'],
}  # fmt: skip
COLONS = [*[":"] * 12, ": ", ":  ", " :", ":\t"]


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_lines_with_values_of_other_types_are_read_as_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of keys and quotes must not be made up for by values that have too many or too few of them."""
    rng = random.Random(seed)
    for _ in range(400):
        lines, others = [], rng.choice(([], ["z"], ["z"], ["z", ""]))
        for number in range(rng.choice((1, 2, 3, 9))):
            names = ["a", "an_address_of_mine", "b", *others] if rng.random() < 0.7 else rng.choices(list(VALUES), k=4)
            usual = number == 0 or rng.random() < 0.6
            members = [
                f'"{name}"{":" if usual else rng.choice(COLONS)}{rng.choice(VALUES[name][: 3 if usual else None])}'
                for name in names
            ]
            lines.append("{" + rng.choice((",", ", ")).join(members) + "}")
        found = _outcome(lines)
        with monkeypatch.context() as patch:
            patch.setattr(json_lines, "examine", lambda *_: LineKeys(are_distinct=False, have_texts=False))
            assert found == _outcome(lines), lines


COLUMNS: dict[str, DType] = {name: Optional(Int()) for name in ("id", "uid", "paid", "s_id", "ts")}
FOREIGN = ["merchant_id", "d", "xs_id", "_id", "aid", "idd", "t"]


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_a_key_of_no_column_may_end_as_one_does(seed: int) -> None:
    """A key of no column that is left out makes up for one of a column that is there twice, if they are taken for each other."""
    rng = random.Random(seed)
    for _ in range(300):
        others = rng.sample(FOREIGN, rng.choice((1, 1, 2, 3, 4)))
        lines = [json.dumps(dict.fromkeys([*COLUMNS, *others], 1), separators=(",", ":"))]
        for _ in range(rng.choice((1, 2, 5))):
            names = [
                *rng.sample(list(COLUMNS), rng.choice((3, 4, 5))),
                *rng.sample(others, rng.randint(0, len(others))),
            ]
            names += rng.choices([*COLUMNS, *FOREIGN], k=rng.choice((0, 0, 1, 2)))
            rng.shuffle(names)
            lines.append("{" + ",".join(f'"{name}":{rng.randint(0, 3)}' for name in names) + "}")
        assert _rows(COLUMNS, lines) == [_expected(COLUMNS, line) for line in lines], lines


@pytest.mark.parametrize("name", ["b", ""])
def test_a_column_may_have_a_quote_in_its_name(name: str) -> None:
    """A key of no column differs from it by no single byte."""
    columns: dict[str, DType] = {'a"' + name: Optional(Int()), "c": Optional(Int())}
    lines = [json.dumps({name: 1, "c": number}, separators=(",", ":")) for number in range(3)]
    rows = list[dict[str, Any]]()
    reading = Thread(target=lambda: rows.extend(_rows(columns, lines)), daemon=True)
    reading.start()
    reading.join(30)
    assert rows == [_expected(columns, line) for line in lines]


def test_a_key_of_a_megabyte_takes_little_memory() -> None:
    columns: dict[str, DType] = {f"field_{number}": Optional(Int()) for number in range(12)}
    lines = [json.dumps({**dict.fromkeys(columns, 1), "k" * (1 << 20): 1}, separators=(",", ":"))]
    tracemalloc.start()
    try:
        assert _rows(columns, lines) == [_expected(columns, lines[0])]
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def _outcome(lines: list[str]) -> list[Any]:
    """Return the rows of lines, with "refused" in place of values that are."""
    found = list[Any]()
    for raw in JsonLines(FLAT, exact=True).read("\n".join(lines).encode()):
        columns = []
        for name, dtype in FLAT.items():
            checked = dtype.ingest(raw.frame[name])
            columns.append(["refused" if n in checked.errors else v for n, v in enumerate(checked.values.to_list())])
        found += zip(*columns, strict=True)
    return found


def _is_at_once(rows: list[dict[str, Any]], requested: dict[str, DType], separators: tuple[str, str]) -> bool:
    data = "\n".join(json.dumps(row, separators=separators) for row in rows).encode()
    return json_lines.JsonLines(requested, exact=True).at_once(data) is not None


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":"), (", ", " : ")])
def test_usual_lines_are_still_read_at_once(separators: tuple[str, str]) -> None:
    regular = [{"a": n, "an_address_of_mine": f"né {n}", "b": n / 8, "extra": {"c": n}} for n in range(40)]
    with_nulls = [{**row, "a": None} if row["a"] % 3 else row for row in regular]
    with_gaps = [{key: value for key, value in row.items() if key != "a" or value} for row in with_nulls]
    with_json = [{**row, "an_address_of_mine": json.dumps(row)} for row in with_gaps]
    for rows in (regular, with_nulls, with_gaps, with_json):
        assert _is_at_once(rows, FLAT, separators)
    nested = [{"a": n, "p": {"x": n, "y": 1}, "ps": [{"x": 1, "y": k} for k in range(n % 3)]} for n in range(40)]
    assert _is_at_once(nested, NESTED, separators)
