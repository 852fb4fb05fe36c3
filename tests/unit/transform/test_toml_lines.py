"""Lines of TOML: each value that `tomllib` reads has one, whatever it is written like."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel.transform.toml_lines import TomlPath, toml_lines

TEXT = r'''# [not] = "a table"
top = 1 # one
"quoted \" # key" = 'x # "y"'
a . "b.c" . d = true
at = 1979-05-27 07:32:00Z
list = [ # first
  1,
  [2, 3],
  # between
  {x = "]", y.z = [{w = 1}]}, """a
  ] # still a text""",
]
block = """
first
\"""second"""
literal = @@@
one@@@
ends = """a""""
empty = []
none = {}

[table] # [a]
x = """ " "" \" """
[table.inner]
y = 2

[[ fields ]]
name = "a"
[[fields.steps]]
n = 1
[[fields.steps]]
n = 2
  [fields.steps.more]
  k = 3
[[fields]]
name = "b"
[fields.one]
[fields.one.two]
v = [
]
'''.replace("@@@", "'''")
EXPECTED: dict[TomlPath, int] = {
    ("top",): 2,
    ('quoted " # key',): 3,
    ("a", "b.c", "d"): 4,
    ("at",): 5,
    ("list",): 6,
    ("list", 0): 7,
    ("list", 1, 1): 8,
    ("list", 2, "x"): 10,
    ("list", 2, "y", "z", 0, "w"): 10,
    ("list", 3): 10,
    ("block",): 14,
    ("literal",): 17,
    ("ends",): 18,
    ("table", "x"): 23,
    ("table", "inner", "y"): 25,
    ("fields", 0): 27,
    ("fields", 0, "steps", 1, "n"): 32,
    ("fields", 0, "steps", 1, "more", "k"): 34,
    ("fields", 1): 35,
    ("fields", 1, "one", "two", "v"): 39,
}


def paths(value: Any, path: TomlPath = ()) -> Iterator[TomlPath]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield (*path, name)
        yield from paths(each, (*path, name))


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\n", "\r\n")])
def test_each_value_has_its_line(text: str) -> None:
    found = toml_lines(text)
    assert {path: found[path].line for path in EXPECTED} == EXPECTED
    assert set(found) == set(paths(tomllib.loads(text)))


VALUES = st.recursive(
    st.sampled_from(["1", "-2.5e3", "true", "1979-05-27", '"a\\"#]}"', "'#,'", '"""\nx"y"""', "'''a\n'b'''"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda found: "[\n" + ", # c\n".join(found) + "]"),
        st.lists(inner, max_size=3).map(
            lambda found: "{" + ", ".join(f'k{n}."a b" = {each}' for n, each in enumerate(found)) + "}"
        ),
    ),
    max_leaves=8,
)
HEADS = st.sampled_from(["[a.b]", "[[c]]", "[[c.d]]", "[c.e]", '[a."x y"]', "[[ c . d . f ]]"])


@given(st.lists(st.tuples(HEADS | st.just(""), VALUES), max_size=6))
def test_any_text_that_is_valid(parts: list[tuple[str, str]]) -> None:
    text = "\n".join(f"{head}\nkey{number} = {value}" for number, (head, value) in enumerate(parts))
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    found = toml_lines(text)
    assert set(found) == set(paths(expected))
    last = [each.line for path, each in found.items() if len(path) == 1]
    assert all(1 <= line <= text.count("\n") + 1 for line in last)
