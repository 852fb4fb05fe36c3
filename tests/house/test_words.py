"""The code speaks the field's words: banned identifiers, plain first lines, one meaning per class name."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

from tests.house.sources import PACKAGE, modules, shown, tree

BANNED = frozenset(
    [
        "told",
        "telling",
        "heard",
        "asked",
        "wanted",
        "given",
        "stated",
        "few",
        "held",
        "kept",
        "keeper",
        "fault",
        "faults",
        "faulty",
        "outbox",
        "mail",
        "parcel",
        "frontier",
        "frontiers",
        "timeline",
        "fate",
        "lived",
        "void",
        "settled",
        "crowded",
        "crew",
        "kinship",
        "upkeep",
        "sheet",
        "probe",
        "whoever",
    ]
)
"""Parts of identifiers of umbel 0.1 that no reader would search for; `docs/glossary.md` has the words instead."""

ELSEWHERE = {"get_timeline", "keep_alive"}
"""Names that libraries gave."""
HYPOTHESIS = "given"
"""The decorator of hypothesis, in modules that import it."""
WRITTEN = ("src", "tests", "benchmarks", "examples", "docs")

START = re.compile(r"^(what|those|whoever|whose|how|where|when|whether|who|which|that)\b", re.IGNORECASE)
WORDS = 15

SHARED = {"Decimal", "Dict", "Embedding", "Window"}
"""Types that stand in annotations under the name of the type of values they denote."""


def test_identifiers_are_the_fields_words() -> None:
    found = []
    for path in modules(*WRITTEN):
        text = path.read_text(encoding="utf-8")
        elsewhere = ELSEWHERE | ({HYPOTHESIS} if "from hypothesis import" in text else set())
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME and token.string not in elsewhere and _parts(token.string) & BANNED:
                found.append(f"{shown(path, token.start[0])} {token.string}")
    assert found == []


def _parts(name: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def test_first_lines_of_docstrings_are_plain() -> None:
    found = []
    for path in modules("src"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = (ast.get_docstring(node) or "").partition("\n")[0]
                if START.match(first) or len(first.split()) > WORDS:
                    found.append(f"{shown(path, getattr(node, 'lineno', 1))} {first}")
    assert found == []


def test_a_class_name_means_one_thing() -> None:
    classes: dict[str, list[str]] = defaultdict(list)
    for path in modules("src"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(shown(path, node.lineno))
    assert {name: places for name, places in classes.items() if len(places) > 1 and name not in SHARED} == {}


def test_generated_code_is_left_out() -> None:
    assert not [path for path in modules("src") if "_pb2" in path.name]
    assert Path(PACKAGE).is_dir()
