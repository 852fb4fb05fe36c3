"""What the house rules are checked on: the files of the repository and their syntax trees."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "umbel"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tracked() -> tuple[Path, ...]:
    """Return the files that belong to the repository and are there, generated code aside."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = (ROOT / name for name in listed if name)
    return tuple(path for path in paths if path.is_file() and "_pb2" not in path.name)


@cache
def modules(*folders: str) -> tuple[Path, ...]:
    """Return the Python files of these folders of the repository; of all where none is given."""
    chosen = [ROOT / folder for folder in folders] or [ROOT]
    return tuple(path for path in tracked() if path.suffix == ".py" and any(path.is_relative_to(at) for at in chosen))


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def functions(path: Path) -> Iterator[tuple[Function, int]]:
    """Yield each function of a file with its number of lines, decorators aside."""
    for node in ast.walk(tree(path)):
        if isinstance(node, Function):
            yield node, (node.end_lineno or node.lineno) - node.lineno + 1


def shown(path: Path, line: int | None = None) -> str:
    """Return a place as `file` or `file:line`, from the root of the repository."""
    place = str(path.relative_to(ROOT))
    return place if line is None else f"{place}:{line}"
