"""Mutation testing: change one operator or drop one statement, and see whether any test goes red.

    python -m tests.mutants windowing/tile_points.py windowing/tile_reads.py --seconds 600
    python -m tests.mutants catalog --sample 100 --seed 3

Each mutant is a copy of the package with one change, run by the tests that belong to its module (`TESTS`) until one fails,
in a process forked from one that has imported what is slow to import. Survivors are printed as `file:line  before → after`;
they are either equivalent or want a test.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "umbel"
TESTS: dict[str, tuple[str, ...]] = {
    "windowing/tile_points": ("tests/laws/test_lookup_paths.py",),
    "windowing/til": (
        "tests/unit/windowing/test_tiles.py",
        "tests/laws/test_tiles.py",
        "tests/laws/test_lookup_paths.py",
    ),
    "windowing": ("tests/unit/windowing", "tests/laws/test_windows.py"),
    "operators/aggregate": (
        "tests/unit/operators/test_aggregate.py",
        "tests/unit/windowing",
        "tests/laws/test_tiles.py",
    ),
    "operators": ("tests/unit/operators", "tests/laws/test_joins.py", "tests/conformance/test_conformance.py"),
    "query": ("tests/unit/query", "tests/laws/test_lookup_paths.py", "tests/unit/serving/test_queries.py"),
    "catalog": ("tests/unit/catalog", "tests/unit/serving/test_branches.py"),
    "runtime": ("tests/unit/runtime", "tests/unit/serving/test_control.py"),
}
"""The tests of a module, quick ones first: of the longest name that it begins with."""
TIMEOUT = 150.0
"""Seconds a mutant may take; one that takes longer hangs, and that is seen."""
OTHER_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER_OPERATOR: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}

MUTABLE = (
    ast.Compare,
    ast.BinOp,
    ast.AugAssign,
    ast.BoolOp,
    ast.UnaryOp,
    ast.Constant,
    ast.If,
    ast.FunctionDef,
    ast.For,
    ast.With,
)


@dataclass(frozen=True)
class Mutant:
    """A changed module.

    Args:
        path: of the module.
        line: of the change.
        change: what it is.
        text: the changed source.
        is_edge: whether a comparison is changed; these are tried first.
    """

    path: Path
    line: int
    change: str
    text: str
    is_edge: bool


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for number, node in enumerate(ast.walk(tree)):
        for kind in range(2):
            mutant = copy.deepcopy(node) if isinstance(node, MUTABLE) else node
            if mutant is node or not _mutate(mutant, kind):
                continue
            changed = copy.deepcopy(tree)
            _mutate(next(each for place, each in enumerate(ast.walk(changed)) if place == number), kind)
            change = f"{_short(ast.unparse(node))}  →  {_short(ast.unparse(mutant))}"
            yield Mutant(path, node.lineno, change, ast.unparse(changed), isinstance(node, ast.Compare))


def _mutate(node: ast.AST, kind: int) -> bool:
    """Change a node in place; return whether there is such a change."""
    if kind == 0 and isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER_COMPARISON:
        node.ops[0] = OTHER_COMPARISON[type(node.ops[0])]()
        return True
    if kind == 0 and isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OTHER_OPERATOR:
        node.op = OTHER_OPERATOR[type(node.op)]()
        return not _is_annotation(node)
    if kind == 0 and isinstance(node, ast.BoolOp):
        node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        return True
    if kind == 0 and isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        node.op = ast.UAdd()
        return True
    if kind == 0 and isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
        return True
    if kind == 1 and isinstance(node, ast.If | ast.FunctionDef | ast.For | ast.With):
        return _drop(node)
    return False


def _drop(node: ast.If | ast.FunctionDef | ast.For | ast.With) -> bool:
    """Drop the last statement of a block that is called for its effect."""
    for place in reversed(range(len(node.body))):
        each = node.body[place]
        is_call = isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)
        if is_call or isinstance(each, ast.AugAssign | ast.Raise):
            node.body[place] = ast.copy_location(ast.Pass(), each)
            return True
    return False


def _is_annotation(node: ast.AST) -> bool:
    """Return whether `a | b` looks like a type: `int | None`."""
    return isinstance(node, ast.BinOp) and any(
        isinstance(side, ast.Constant) and side.value is None for side in (node.left, node.right)
    )


def _short(text: str) -> str:
    return " ".join(text.split())[:90]


def _tests(path: Path) -> tuple[str, ...]:
    name = str(path.relative_to(SOURCE))
    return TESTS[max((each for each in TESTS if name.startswith(each)), key=len)]


def _is_killed(mutant: Mutant, tests: tuple[str, ...]) -> bool:
    """Run tests on a package with one changed module; return whether any fails, or hangs."""
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    try:
        shutil.copytree(SOURCE, folder / "umbel", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "umbel" / mutant.path.relative_to(SOURCE)).write_text(mutant.text, encoding="utf-8")
        return any(_run(folder, test) for test in tests)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path, test: str) -> bool:
    """Run tests in a fork; return whether they fail."""
    child = os.fork()
    if not child:
        _test(folder, test)
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def _test(folder: Path, test: str) -> None:
    import pytest

    os.setpgid(0, 0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.dont_write_bytecode = True
    options = [
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        f"pythonpath={folder} {ROOT}",
        "-m",
        "not nightly and not spark",
    ]
    os._exit(int(pytest.main([*options, test])))


def _warm() -> None:
    """Import what is slow to import and starts no threads."""
    for name in ("hypothesis", "numpy", "pandas", "polars", "pyarrow", "pytest", "sqlalchemy"):
        __import__(name)


def main() -> None:
    """Print the mutants that no test sees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", help="files and folders below src/umbel")
    parser.add_argument("--sample", type=int, help="how many mutants; all when left out")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no further mutant is begun after these")
    requested = parser.parse_args()
    os.chdir(ROOT)
    os.environ["UMBEL_TESTS"] = "mutants"
    places = [SOURCE / each for each in requested.modules]
    paths = [path for place in places for path in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
    found = [mutant for path in paths if path.name != "__init__.py" for mutant in mutants(path)]
    if requested.sample is not None:
        found = random.Random(requested.seed).sample(found, min(requested.sample, len(found)))
    found.sort(key=lambda mutant: not mutant.is_edge)
    _warm()
    begun, survivors, count = time.monotonic(), 0, 0
    for mutant in found:
        if time.monotonic() - begun > requested.seconds:
            break
        count += 1
        if not _is_killed(mutant, _tests(mutant.path)):
            survivors += 1
            print(f"{mutant.path.relative_to(ROOT)}:{mutant.line}  {mutant.change}", flush=True)
    print(f"{count} of {len(found)} mutants tried, {survivors} survived, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
