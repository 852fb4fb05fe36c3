"""Recording of the lines that each test executes, in one run of the tests with coverage."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "umbel"
FOLDER = ROOT / ".mutants"
"""Recordings are stored here, by the content of the package and of the tests."""


@dataclass
class Executed:
    """The tests that execute each line.

    Args:
        lines: the names of the tests by file, relative to the package, and line.
        seconds: a test took, set-up included; only tests that passed.
    """

    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def tests(self, path: Path, first: int, last: int, is_import: bool) -> list[str]:
        """Return the tests that execute a line of a range, quick ones first; those of the file for what runs on import."""
        lines = self.lines.get(str(path.relative_to(SOURCE)), {})
        chosen = lines if is_import else range(first, last + 1)
        names = {name for line in chosen for name in lines.get(line, ())}
        return sorted(names & self.seconds.keys(), key=lambda name: self.seconds[name])


class Selected:
    """A pytest plugin: only these tests, in this order; without names all but those that need Spark or minutes."""

    def __init__(self, names: Iterable[str] | None = None) -> None:
        self._places = None if names is None else {name: place for place, name in enumerate(names)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the others out."""
        if self._places is None:
            items[:] = [item for item in items if not _is_left_out(item)]
        else:
            places = self._places
            items[:] = sorted((each for each in items if each.nodeid in places), key=lambda item: places[item.nodeid])


def _is_left_out(item: pytest.Item) -> bool:
    own = {mark.name for mark in item.own_markers}
    # The cases have the mark of their folder, though those of `test_conformance.py` run in process.
    is_spark = item.get_closest_marker("spark") is not None and item.path.name != "test_conformance.py"
    return "nightly" in own or is_spark or "spark" in getattr(item, "fixturenames", ())


class Recorder:
    """A pytest plugin: records which lines each test executes, and for how long it runs."""

    def __init__(self, modules: Iterable[Path]) -> None:
        from coverage import Coverage

        self._coverage = Coverage(data_file=None, include=[str(path) for path in modules], config_file=False)
        self._seconds: dict[str, float] = defaultdict(float)
        self._bad: set[str] = set()
        self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record under the name of the test."""
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of a step; tests that do not pass as it is say nothing of a change."""
        self._seconds[report.nodeid] += report.duration
        if report.outcome != "passed":
            self._bad.add(report.nodeid)

    def recorded(self) -> Executed:
        """Return what was recorded."""
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {
            str(Path(file).relative_to(SOURCE)): {
                line: [name for name in names if name] for line, names in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        passed = {name: seconds for name, seconds in self._seconds.items() if name not in self._bad}
        return Executed(lines, passed)


def record(modules: list[Path], tests: tuple[str, ...]) -> Executed:
    """Run tests in a fork and return which lines of the modules they execute; at once when nothing has changed since."""
    path = FOLDER / f"{_state(modules, tests)}.json"
    if not path.is_file():
        FOLDER.mkdir(exist_ok=True)
        child = os.fork()
        if not child:
            _record(modules, tests, path)
        os.waitpid(child, 0)
    data = json.loads(path.read_bytes())
    lines = {file: {int(line): names for line, names in each.items()} for file, each in data["lines"].items()}
    return Executed(lines, data["seconds"])


def _record(modules: list[Path], tests: tuple[str, ...], path: Path) -> None:
    recorder = Recorder(modules)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        pytest.main([*OPTIONS, f"--basetemp={folder}/tmp", *tests], plugins=[Selected(), recorder])
    path.write_text(json.dumps(asdict(recorder.recorded())), encoding="utf-8")
    os._exit(0)


OPTIONS = ["-q", "-p", "no:cacheprovider", "--no-header", "-o", "addopts=--import-mode=importlib", "-W", "ignore"]


def _state(modules: list[Path], tests: tuple[str, ...]) -> str:
    """Return a name for the content that a recording depends on."""
    known = hashlib.sha256(repr(([str(path) for path in modules], tests)).encode())
    for path in sorted([*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        if path.parent != Path(__file__).parent:
            known.update(path.read_bytes())
    return known.hexdigest()[:20]
