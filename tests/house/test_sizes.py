"""A file holds one idea and a function one step."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median

from tests.house.sources import ROOT, functions, modules, shown, tree

LINES_OF_FILE, LINES_OF_CLASS, LINES_OF_FUNCTION = 400, 600, 40
MEDIAN_OF_FILES, MEDIAN_OF_FUNCTIONS = 200, 8
FORBIDDEN = {"utils", "util", "helpers", "helper", "common", "base", "manager", "managers", "misc"}


def test_no_file_is_long() -> None:
    lengths = {shown(path): path.read_text(encoding="utf-8").count("\n") for path in modules()}
    assert {place: lines for place, lines in lengths.items() if lines > _limit(ROOT / place)} == {}


def _limit(path: Path) -> int:
    """Return the number of lines a file may have: more where one class is most of it, which is not cut up."""
    classes = [(each.end_lineno or 0) - each.lineno for each in tree(path).body if isinstance(each, ast.ClassDef)]
    return LINES_OF_CLASS if 3 * max(classes, default=0) > 2 * LINES_OF_FILE else LINES_OF_FILE


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
