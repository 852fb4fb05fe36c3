"""Trial of mutants: each in a fork of a process that has collected the tests, with the changed functions' code in place."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import NoReturn

import pytest

from tests.mutants.changes import Mutant
from tests.mutants.executed import OPTIONS, ROOT, SOURCE, Executed, Selected

ANEW = ("tests/conformance/test_conformance.py", "tests/unit/api", "tests/unit/rules")
"""Tests that start threads when they are collected, by using Polars: they run in a process of their own."""
RUNNER_ERRORS = {3, 4, 5}
"""Exit codes of pytest that say nothing of the tests: an error of its own, of its arguments, nothing collected."""
Report = Callable[[Mutant, str], bool]
"""Takes the outcome of a trial; returns whether to go on."""


class Trials:
    """A pytest plugin: instead of running the collected tests, tries mutants with them.

    Args:
        found: the mutants.
        executed: the tests that execute each line.
        longest: seconds of tests that a mutant is tried with; the slowest tests beyond that are left out.
        report: called with each mutant and `killed`, `survived` or `not executed`.
    """

    def __init__(self, found: list[Mutant], executed: Executed, longest: float, report: Report) -> None:
        self._found, self._executed, self._longest, self._report = found, executed, longest, report
        self._has_failed = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try one mutant after the other."""
        if _has_threads():
            raise RuntimeError("collecting the tests has started threads, which forks do not have")
        items = {item.nodeid: item for item in session.items}
        for mutant in self._found:
            names = _within(self._longest, self._executed, mutant)
            if not self._report(mutant, self._outcome(mutant, names, items) if names else "not executed"):
                break
        return True

    def _outcome(self, mutant: Mutant, names: list[str], items: dict[str, pytest.Item]) -> str:
        seconds = 15 + 3 * sum(self._executed.seconds[name] for name in names)
        swaps = [] if mutant.is_import else list(_swaps(mutant))
        mine = [items[name] for name in names if name in items and swaps]
        anew = [name for name in names if name not in items or not swaps]
        is_killed = bool(mine) and _fails(lambda: self._run(swaps, mine), seconds)
        return "killed" if is_killed or (anew and _fails_as_a_copy(mutant, anew, seconds)) else "survived"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        self._has_failed |= report.failed

    def _run(self, swaps: list[tuple[FunctionType, CodeType]], items: list[pytest.Item]) -> NoReturn:
        for function, code in swaps:
            function.__code__ = code
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._has_failed:
                os._exit(1)
        os._exit(0)


def try_all(found: list[Mutant], tests: tuple[str, ...], executed: Executed, longest: float, until: float) -> None:
    """Collect tests and try mutants with them, in a fork; print those that are not killed, and counts."""
    child = os.fork()
    if child:
        if os.waitpid(child, 0)[1]:
            raise SystemExit("the trial of mutants was broken off")
        return
    tally = Tally(until)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        options = [*OPTIONS, f"--basetemp={folder}/tmp", *(each for each in tests if each not in ANEW)]
        code = pytest.main(
            options, plugins=[Selected(executed.seconds), Trials(found, executed, longest, tally.report)]
        )
    tally.summarize()
    os._exit(code)


def _has_threads() -> bool:
    tasks = Path("/proc/self/task")
    return tasks.is_dir() and len(list(tasks.iterdir())) > 1


def _within(seconds: float, executed: Executed, mutant: Mutant) -> list[str]:
    """Return the tests that execute the change: the quickest, for so many seconds."""
    names = executed.tests(mutant.path, *mutant.lines, mutant.is_import)
    chosen, total = names[:1], sum(executed.seconds[name] for name in names[:1])
    for name in names[1:]:
        total += executed.seconds[name]
        if total > seconds:
            break
        chosen.append(name)
    return chosen


def _swaps(mutant: Mutant) -> Iterator[tuple[FunctionType, CodeType]]:
    """Yield the functions that the change is in, with their changed code; none where code cannot take the other's place."""
    codes: dict[tuple[str, int], list[CodeType]] = defaultdict(list)
    for code in _codes(compile(mutant.tree, str(mutant.path), "exec", dont_inherit=True)):
        codes[code.co_qualname, code.co_firstlineno].append(code)
    for function in [each for each in gc.get_objects() if isinstance(each, FunctionType)]:
        old = function.__code__
        if old.co_filename != str(mutant.path):
            continue
        (new, *others) = codes.get((old.co_qualname, old.co_firstlineno)) or [old]
        if new != old and not others and new.co_freevars == old.co_freevars:
            yield function, new


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _fails_as_a_copy(mutant: Mutant, names: list[str], seconds: float) -> bool:
    """Return whether tests fail with a copy of the package that has the changed module: for changes of what runs on import."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        shutil.copytree(SOURCE, Path(folder) / "umbel")
        place = Path(folder) / "umbel" / mutant.path.relative_to(SOURCE)
        place.write_text(mutant.text, encoding="utf-8")
        return _fails(lambda: _run_anew(folder, names), seconds + 20)


def _run_anew(folder: str, names: list[str]) -> NoReturn:
    paths = f"pythonpath={folder} {ROOT} {ROOT / 'docs' / '_ext'}"
    files = dict.fromkeys(name.partition("::")[0] for name in names)
    os.environ["PYTHONPATH"] = folder
    script = (
        "import sys, pytest; from tests.mutants.executed import Selected;"
        "sys.dont_write_bytecode = True; names, options = map(eval, sys.argv[1:]);"
        "sys.exit(pytest.main(options, plugins=[Selected(names)]))"
    )
    options = [*OPTIONS, "-x", "-o", paths, f"--basetemp={folder}/tmp", *files]
    os.execv(sys.executable, [sys.executable, "-c", script, repr(names), repr(options)])


def _fails(run: Callable[[], NoReturn], seconds: float) -> bool:
    """Run something in a fork; return whether it exits with an error, or hangs."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            run()
        finally:
            os._exit(1)
    deadline = time.monotonic() + seconds
    done, status = 0, 1
    while not done and time.monotonic() < deadline:
        time.sleep(0.01)
        done, status = os.waitpid(child, os.WNOHANG)
    _end(child)
    if not done:
        os.waitpid(child, 0)
        return True
    if os.waitstatus_to_exitcode(status) in RUNNER_ERRORS:
        raise RuntimeError(f"pytest ended with {os.waitstatus_to_exitcode(status)}")
    return status != 0


def _end(child: int) -> None:
    """Kill a process and those it has started."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        return


class Tally:
    """Counts of outcomes by folder, and a line for each mutant that is not killed."""

    def __init__(self, until: float) -> None:
        self.counts, self._until = defaultdict[str, Counter[str]](Counter), until
        self._out = os.fdopen(os.dup(1), "w", buffering=1)

    def report(self, mutant: Mutant, outcome: str) -> bool:
        """Count an outcome; return whether there is time for another one."""
        self.counts[str(mutant.path.parent.relative_to(SOURCE))][outcome] += 1
        if outcome != "killed":
            print(f"\n{mutant}  ({outcome})", file=self._out)
        return time.monotonic() < self._until

    def summarize(self) -> None:
        """Print the counts."""
        for folder, each in sorted(self.counts.items()):
            numbers = ", ".join(f"{number} {name}" for name, number in sorted(each.items()))
            print(f"{folder}: {each.total()} tried, {numbers}", file=self._out)
