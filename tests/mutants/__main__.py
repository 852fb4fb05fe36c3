"""Mutation testing: change one operator or drop one statement, and see whether any test goes red.

    python -m tests.mutants windowing/tile_points.py windowing/tile_reads.py --seconds 600
    python -m tests.mutants catalog --sample 100 --seed 3
    python -m tests.mutants log state/runs --edges > survivors.txt
    python -m tests.mutants log state/runs --again survivors.txt --longest 120

First the tests of each module (`TESTS`) run once, to record which lines each of them executes; the recording is stored until
the package or a test changes. A mutant, a copy of the package with one change, is then run by the tests that execute the changed
line, quick ones first, until one fails. Survivors are printed as `file:line  before → after`; they are either equivalent or want
a test. Tests that need Spark, and what tests do in other processes, do not count: lines that only they reach are printed as not
executed.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.changes import Mutant, mutants
from tests.mutants.executed import ROOT, SOURCE, record
from tests.mutants.trial import try_all

SERVING = ("backlog", "branches", "control", "damage", "gate", "offline_jobs", "service", "stalls", "switching")
DEPLOYMENT = ("tests/unit/catalog", "tests/unit/runtime", *(f"tests/unit/serving/test_{name}.py" for name in SERVING))
TESTS: dict[str, tuple[str, ...]] = {
    "windowing/tile_points": ("tests/laws/test_lookup_paths.py",),
    "windowing/til": (
        "tests/unit/windowing/test_tiles.py",
        "tests/laws/test_tiles.py",
        "tests/laws/test_lookup_paths.py",
    ),
    "windowing": ("tests/unit/windowing", "tests/laws/test_windows.py"),
    "operators": (
        "tests/unit/operators",
        "tests/unit/windowing",
        "tests/laws/test_joins.py",
        "tests/laws/test_tiles.py",
        "tests/conformance/test_conformance.py",
        "tests/unit/runtime",
    ),
    "query": ("tests/unit/query", "tests/laws/test_lookup_paths.py", "tests/unit/serving/test_queries.py"),
    "catalog": DEPLOYMENT,
    "runtime": DEPLOYMENT,
    "state/runs": ("tests/unit/state/runs",),
    "state": ("tests/unit/state", "tests/contracts/test_store.py", "tests/contracts/test_store_undo.py"),
    "log": (
        "tests/unit/log",
        "tests/unit/connectors/test_ingestlog.py",
        "tests/unit/runtime/test_changelogs.py",
        "tests/unit/runtime/test_plans.py",
        "tests/unit/serving/test_damage.py",
        "tests/unit/serving/test_feature_log.py",
        "tests/unit/serving/test_ingestion.py",
    ),
}
"""The tests of a module: of the longest name that it begins with."""
WARM = "deltalake,httpx,hypothesis,numpy,pandas,polars,pyarrow,pytest,sqlalchemy.orm,starlette.applications"
"""What is slow to import and starts no threads."""


def main() -> None:
    """Print the mutants that no test sees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", help="files and folders below src/umbel")
    parser.add_argument("--edges", action="store_true", help="only changed comparisons")
    parser.add_argument("--sample", type=int, help="how many mutants, spread evenly; all when left out")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--again", type=Path, help="only those that are printed in a file")
    parser.add_argument(
        "--longest", type=float, default=12.0, help="seconds of tests for a mutant; slow tests beyond are left out"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no further mutant is begun after these")
    requested = parser.parse_args()
    os.chdir(ROOT)
    os.environ["UMBEL_TESTS"] = "mutants"
    paths = [path for each in requested.modules for path in _modules(SOURCE / each)]
    found = [mutant for path in paths for mutant in mutants(path) if mutant.is_edge or not requested.edges]
    if requested.again is not None:
        printed = requested.again.read_text(encoding="utf-8", errors="replace")
        found = [mutant for mutant in found if f"{mutant}  (" in printed]
    found = _sample(found, requested.sample or len(found), requested.seed)
    found.sort(key=lambda mutant: (mutant.is_import, not mutant.is_edge))
    for name in WARM.split(","):
        __import__(name)
    begun = time.monotonic()
    for tests, modules in _groups(paths).items():
        mine = [mutant for mutant in found if mutant.path in modules]
        executed = record(modules, tests)
        if mine:
            try_all(mine, tests, executed, requested.longest, begun + requested.seconds)
    print(f"{time.monotonic() - begun:.0f} s")


def _modules(place: Path) -> Iterator[Path]:
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return (path for path in files if path.name != "__init__.py")


def _groups(paths: list[Path]) -> dict[tuple[str, ...], list[Path]]:
    """Return the modules by their tests."""
    groups = defaultdict[tuple[str, ...], list[Path]](list)
    for path in paths:
        name = str(path.relative_to(SOURCE))
        groups[TESTS[max((each for each in TESTS if name.startswith(each)), key=len)]].append(path)
    return groups


def _sample(found: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return so many mutants, spread evenly over the modules and their lines."""
    step = len(found) / min(count, len(found) or 1)
    start = random.Random(seed).random() * step
    return [found[int(start + place * step)] for place in range(min(count, len(found)))] if found else []


if __name__ == "__main__":
    main()
