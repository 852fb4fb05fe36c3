"""Code that becomes part of a plan: what differs between Polars and Python runs as Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain

import pytest

from umbel.transform.batches import BatchTransform
from umbel.transform.configuration import loads
from umbel.transform.leaves import seen_kinds
from umbel.transform.native import ColumnKind
from umbel.transform.plan import compiled
from umbel.transform.values import parse


def check(step: dict[str, object], lines: list[bytes]) -> BatchTransform:
    documents = [
        {"source_field": "a", "target_field": "t", "transformations": [step]},
        {"source_field": "a", "target_field": "u"},
    ]
    transform = BatchTransform(loads("\n---\n".join(map(json.dumps, documents)), "c.yaml"))
    expected = transform.record_by_record(lines)
    found = transform(lines)
    assert (found.data, found.letters) == (expected.data, expected.letters)
    return transform


def is_native(transform: BatchTransform, lines: list[bytes]) -> bool:
    plan = compiled(transform.configuration, seen_kinds(list(map(parse, lines))))
    return plan.documents[0].native is not None


@pytest.mark.parametrize(
    "code",
    [
        "return record.get('b', {})",
        "x = record.get('b', {})\nreturn x is None",
        "return bool(record.get('b', {}))",
        "return record.get('b', {}).get('c', 'none')",
    ],
)
@pytest.mark.parametrize("other", ['"x"', "null", '{"c":"x"}', "{}"])
def test_an_absent_member_is_an_empty_object(code: str, other: str) -> None:
    lines = [b'{"a":"x"}', b'{"a":"x","b":%s}' % other.encode(), b'{"a":"x","b":"y"}']
    check({"name": "custom_code", "code": code}, lines)


@pytest.mark.parametrize(
    "code",
    [
        "str = str(source_field)\nreturn str",
        "x = len(source_field)\nlen = 2\nreturn x",
        "return str(source_field)\nstr = 1",
        "if source_field == 'x':\n  int = 1\nreturn int('1')",
        "x = datetime.now().strftime('%Y')\ndatetime = 1\nreturn 1",
        "x = y\ny = 1\nreturn x",
    ],
)
def test_a_name_that_is_assigned_is_nothing_else_before(code: str) -> None:
    transform = check({"name": "custom_code", "code": code}, [b'{"a":"x"}', b'{"a":"y"}'])
    (first,) = transform([b'{"a":"y"}']).letters
    assert first.error == "UnboundLocalError"


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("return source_field + 0.0", ["-0.0", "1.5"]),
        ("return source_field * -0.0 + 0.0", ["3.0", "-3.5"]),
        ("return 0 - source_field", ["0.0", "-0.0", "2.5"]),
        ("return source_field - record.get('b')", ["-0.0", "0.0"]),
        ("return -0.0 or 0.0", ["1.5"]),
        ("return 0.0 if source_field > 1.0 else -0.0", ["1.5", "0.5"]),
    ],
)
def test_the_sign_of_zero(code: str, values: list[str]) -> None:
    lines = [f'{{"a":{value},"b":0.0}}'.encode() for value in values]
    for each in ([line] for line in lines):
        check({"name": "custom_code", "code": code}, each)
    check({"name": "custom_code", "code": code}, lines)


def test_negative_constants_are_native() -> None:
    lines = [b'{"a":1}', b'{"a":2}']
    transform = check({"name": "custom_code", "code": "return source_field * -2 + -1"}, lines)
    assert is_native(transform, lines)


@pytest.mark.parametrize("pattern", [r"\B", r"a*\B", r"(?:x|\B)", r"\Bx"])
def test_no_boundary_in_an_empty_text(pattern: str) -> None:
    check({"name": "regex_extract", "pattern": pattern}, [b'{"a":""}', b'{"a":"x"}', b'{"a":"xx"}', b'{"a":"a x"}'])


@pytest.mark.parametrize("layout", ["%Y\\x00", "\\ud800"])
def test_a_time_that_cannot_be_written(layout: str) -> None:
    check({"name": "custom_code", "code": f"return datetime.now().strftime('{layout}')"}, [b'{"a":"x"}', b'{"a":"y"}'])


@pytest.mark.parametrize(
    "code",
    [
        "source_field.__getattribute__('append')(9)",
        "type(source_field).__dict__['append'](source_field, 9)",
        "json.codecs.builtins.exec('x.append(9)', {'x': source_field})",
        "__builtins__['eval']('x.append(9)', {'x': source_field})",
        "json.codecs.builtins.getattr(source_field, 'append')(9)",
    ],
)
def test_no_way_to_change_a_record_shows_in_other_documents(code: str) -> None:
    transform = check({"name": "custom_code", "code": f"{code}\nreturn len(source_field)"}, [b'{"a":[1]}', b'{"a":[]}'])
    assert transform([b'{"a":[1]}', b'{"a":[]}']).data == b'{"t":2,"u":[1]}\n{"t":1,"u":[]}\n'


@pytest.mark.parametrize(
    "code",
    [
        lambda n: ["x = source_field", *["x = x + x"] * n, "return x"],
        lambda n: ["x = source_field", *(f"if x > {each}:\n  x = x - 1" for each in range(n)), "return x"],
        lambda n: ["return " + " or ".join(f"(source_field - {each})" for each in range(n))],
        lambda n: ["return " + " and ".join(f"(source_field - {each})" for each in range(n))],
        lambda n: ["return source_field" + " / 2" * n],
        lambda n: ["return str(source_field)" + ".lower().strip()" * n],
    ],
)
def test_the_plan_grows_no_faster_than_the_code(code: Callable[[int], list[str]]) -> None:
    def size(n: int) -> int:
        transform = check(
            {"name": "custom_code", "code": "\n".join(code(n))}, [b'{"a":%d}' % each for each in range(9)]
        )
        plan = compiled(transform.configuration, lambda _: ColumnKind.INT)
        natives = [each.native.expr for each in plan.documents if each.native is not None]
        assert len(natives) == 2
        return sum(len(each.meta.serialize()) for each in (*natives, plan.fit, *chain.from_iterable(plan.stages)))

    assert size(8) < 3 * size(4)


@pytest.mark.parametrize(
    "code",
    [
        "x = source_field\nif x > 1:\n  y = x * 2\nelse:\n  y = 'low'\nreturn str(y)",
        "if source_field > 1:\n  y = 2\nreturn y",
        "y = None\nif source_field > 1:\n  y = 'x' + record.get('b')\nreturn y.upper() if y else 'none'",
        "if source_field > 1:\n  if source_field > 2:\n    return 3\n  y = 2\nelse:\n  y = 1 // source_field\nreturn y",
        "x = record.get('b')\nif source_field > 1:\n  x = record\nreturn x.get('a') if source_field > 1 else x",
    ],
)
def test_names_after_branches(code: str) -> None:
    lines = [*(b'{"a":%d,"b":"x"}' % each for each in range(4)), b'{"a":5}', b'{"a":null,"b":"x"}']
    for each in ([line] for line in lines):
        check({"name": "custom_code", "code": code}, each)
    check({"name": "custom_code", "code": code}, lines)
