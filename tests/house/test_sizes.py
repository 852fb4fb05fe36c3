"""A file holds one idea and a function one step."""

from __future__ import annotations

from statistics import median

from tests.house.sources import functions, modules, shown

LINES_OF_FILE, LINES_OF_FUNCTION = 400, 40
MEDIAN_OF_FILES, MEDIAN_OF_FUNCTIONS = 200, 8
FORBIDDEN = {"utils", "util", "helpers", "helper", "common", "base", "manager", "managers", "misc"}


def test_no_file_is_long() -> None:
    lengths = {shown(path): path.read_text(encoding="utf-8").count("\n") for path in modules()}
    assert {place: lines for place, lines in lengths.items() if lines > LINES_OF_FILE} == {}


def test_most_files_are_short() -> None:
    lengths = [path.read_text(encoding="utf-8").count("\n") for path in modules("src") if path.stat().st_size]
    assert median(lengths) <= MEDIAN_OF_FILES


def test_no_function_is_long() -> None:
    sizes = (
        (f"{shown(path, node.lineno)} {node.name}", lines) for path in modules() for node, lines in functions(path)
    )
    assert {place: lines for place, lines in sizes if lines > LINES_OF_FUNCTION} == {}


def test_most_functions_are_short() -> None:
    assert median(lines for path in modules("src") for _, lines in functions(path)) <= MEDIAN_OF_FUNCTIONS


def test_a_name_says_what_is_inside() -> None:
    parts = {shown(path): {path.stem, *path.parent.parts} for path in modules("src", "benchmarks", "examples")}
    assert [place for place, names in parts.items() if names & FORBIDDEN] == []
