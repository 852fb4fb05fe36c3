"""The guard of a worker: which rows are rejected, what becomes of the others, and what is remembered."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.unit.operators.frames import changes, leaf, schema
from umbel.catalog.verdicts import PERMANENT, Verdicts
from umbel.errors import InvalidValue, Terminal, Transient
from umbel.functions.computed import ByFunction
from umbel.functions.guarding import applied, guarded
from umbel.functions.user_function import UserFunction
from umbel.graph import threads
from umbel.graph.threads import in_threads
from umbel.isolation.function_limits import FunctionLimits
from umbel.operators.assign import Assign, Assigned
from umbel.operators.explode import Explode
from umbel.operators.operator import RowWise
from umbel.runtime import guard as module
from umbel.runtime.deployment import Deployment
from umbel.runtime.guard import WorkerGuard, row_hashes
from umbel.runtime.in_flight import FOLDER, InFlight
from umbel.types.dtypes import Int

ROWS = schema(a=int, s=str)
SHORT = FunctionLimits(row_seconds=1.0, batch_seconds=3.0, memory=256.0)
"""Limits that a row that hangs exceeds soon, and no other one on a machine that is busy."""


@pytest.fixture
def place(tmp_path: Path) -> Deployment:
    return Deployment.at(tmp_path, shards=1)


def assign(function: Callable[[Any], Any]) -> Assign:
    computed = ByFunction(UserFunction(function))
    return Assign(parents=(leaf(ROWS),), pipeline="D.p", columns=(Assigned("b", Int(), computed),))


def rows(*values: int, weight: int = 1) -> pl.DataFrame:
    return changes(ROWS, *((value, f"s{value}", n, n, weight) for n, value in enumerate(values)))


def suspected(place: Deployment, operator: RowWise) -> WorkerGuard:
    Verdicts(place.catalog).suspect([operator.code_id])
    return WorkerGuard(place, SHORT)


def each(act: Callable[[int], int]) -> Callable[[Any], Any]:
    return lambda df: df["a"].map(act).astype("Int64")


def test_without_a_guard_what_is_raised_reaches_the_caller() -> None:
    with pytest.raises(Terminal, match="ZeroDivisionError"):
        applied(assign(each(lambda a: 1 // a)), rows(1, 0))


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 300])
def test_the_rows_that_raise_are_found_and_the_others_are_as_if_they_had_never_been(
    place: Deployment, count: int
) -> None:
    operator = assign(each(lambda a: 10 // (a % 7)))
    guard = WorkerGuard(place, SHORT)
    with guarded(guard):
        made = applied(operator, rows(*range(count)))
    good = [a for a in range(count) if a % 7]
    assert made["a"].to_list() == good
    assert made["b"].to_list() == [10 // (a % 7) for a in good]
    assert guard.counts == {operator.id: count - len(good)}
    assert [letter.raw for letter in guard.rejected] == [
        f'{{"a":{a},"s":"s{a}","t":"{at}"}}'.encode() for a, at in _times(count) if not a % 7
    ]
    assert "ZeroDivisionError: integer division or modulo by zero (at " in guard.rejected[0].reason
    assert f"{Path(__file__).name}:" in guard.rejected[0].reason
    assert guard.rejected[0].title == "assign in pipeline 'D.p', function <lambda>"
    assert not Verdicts(place.catalog).known().verdicts, "they raise again"


def _times(count: int) -> list[tuple[int, str]]:
    shown = rows(*range(count))["t"].dt.strftime("%Y-%m-%dT%H:%M:%S+00:00")
    return list(enumerate(shown))


def test_values_that_do_not_fit_reject_their_rows(place: Deployment) -> None:
    guard = WorkerGuard(place, SHORT)
    with guarded(guard):
        made = applied(assign(lambda df: df["a"].map(lambda a: "one" if a == 1 else a)), rows(0, 1, 2))
    assert made["b"].to_list() == [0, 2]
    assert "expected an integer dtype for int, found object" in guard.rejected[0].reason


def test_a_function_that_looks_at_all_rows_sees_those_that_are_left(place: Deployment) -> None:
    def share(df: Any) -> Any:
        if (df["a"] < 0).any():
            raise ValueError("negative")
        return df["a"] * 0 + len(df)

    with guarded(WorkerGuard(place, SHORT)):
        assert applied(assign(share), rows(1, 2, -1, 3))["b"].to_list() == [3, 3, 3]


def test_a_function_that_fails_only_together_keeps_what_its_parts_make(place: Deployment) -> None:
    def alone(df: Any) -> Any:
        if len(df) > 1:
            raise ValueError("too many")
        return df["a"]

    guard = WorkerGuard(place, SHORT)
    with guarded(guard):
        assert applied(assign(alone), rows(1, 2, 3))["b"].to_list() == [1, 2, 3]
    assert not guard.rejected


def test_a_retraction_of_a_rejected_row_is_no_letter(place: Deployment) -> None:
    guard = WorkerGuard(place, SHORT)
    with guarded(guard):
        assert applied(assign(each(lambda a: 1 // a)), rows(0, weight=-1)).is_empty()
    assert not guard.rejected
    assert not guard.counts.total()


def test_transient_failures_do_not_reject_rows(place: Deployment) -> None:
    def locked(_: Any) -> Any:
        raise Transient("the catalog is locked")

    with guarded(WorkerGuard(place, SHORT)), pytest.raises(Exception, match="the catalog is locked"):
        applied(assign(locked), rows(1))


def test_a_lost_row_stays_out_even_if_the_function_would_now_take_it(place: Deployment, tmp_path: Path) -> None:
    flag = tmp_path / "hang"
    flag.touch()

    def slow(a: int, flag: str = str(flag)) -> int:
        while a in {2, 4} and Path(flag).exists():
            time.sleep(0.01)
        return a

    operator = assign(each(slow))
    first = suspected(place, operator)
    with guarded(first):
        made = applied(operator, rows(1, 2, 3, 4))
    assert made["a"].to_list() == [1, 3]
    flag.unlink()
    for is_marked in (True, False):
        again = WorkerGuard(place, SHORT, is_marked=is_marked)
        with guarded(again):
            assert applied(operator, rows(1, 2, 3, 4)).equals(made)
            assert applied(operator, rows(1, 2, 3, 4)[3:]).is_empty()
        assert [each.reason for each in again.rejected[:2]] == [each.reason for each in first.rejected]
        assert "longer than 1 s" in first.rejected[0].reason
    other = assign(lambda df: df["a"] + 1)
    with guarded(WorkerGuard(place, SHORT)):
        assert applied(other, rows(1, 2))["b"].to_list() == [2, 3], "another function is not judged by it"


def test_a_row_whose_process_others_kill_is_tried_again(place: Deployment, tmp_path: Path) -> None:
    def killed(df: Any, folder: Path = tmp_path / "calls") -> Any:
        calls = len(list(folder.iterdir()))
        (folder / str(calls)).touch()
        if calls < 2:
            os.kill(os.getpid(), 9)
        return df["a"]

    (tmp_path / "calls").mkdir()

    operator = assign(killed)
    guard = suspected(place, operator)
    with guarded(guard):
        made = applied(operator, rows(1, 2, 3))
    assert (made["b"].to_list(), guard.counts) == ([1, 2, 3], {})


def test_a_row_that_hangs_costs_no_other_row_of_a_large_batch(place: Deployment) -> None:
    count = module.SINGLY * 2
    operator = assign(each(lambda a: time.sleep(100) or 1 if a == 3 else a))
    guard = suspected(place, operator)
    with guarded(guard):
        made = applied(operator, rows(*range(count)))
    assert [letter.reason for letter in guard.rejected] == ["it took longer than 1 s"]
    assert made["a"].to_list() == [a for a in range(count) if a != 3]


def test_a_function_that_loses_its_process_for_every_row_is_abandoned(place: Deployment) -> None:
    operator = assign(each(lambda _: time.sleep(100) or 1))
    guard, begun = suspected(place, operator), time.monotonic()
    with guarded(guard):
        assert applied(operator, rows(*range(200))).is_empty()
    assert guard.counts.total() == 200
    assert "not tried" in guard.rejected[-1].reason
    took = time.monotonic() - begun
    assert took < 200 * SHORT.row_seconds
    with guarded(WorkerGuard(place, SHORT)):
        begun = time.monotonic()
        assert applied(operator, rows(*range(200))).is_empty()
        assert time.monotonic() - begun < took / 2, "recorded, so not tried again"


def test_a_suspect_that_behaves_is_trusted_again_but_not_for_ever(
    place: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLEAN", 3)
    operator = assign(lambda df: df["a"] * 0 + __import__("os").getpid())
    here = set()
    for times in range(1, PERMANENT + 1):
        guard = suspected(place, operator)
        module._process_of(place, os.getpid())._clean.clear()
        for _ in range(3):
            with guarded(guard):
                here.add(applied(operator, rows(1))["b"].item() == os.getpid())
        assert here == {False}
        here.clear()
        assert (operator.code_id in Verdicts(place.catalog).known().suspects) == (times == PERMANENT)


def test_the_function_a_process_died_in_is_a_suspect(place: Deployment) -> None:
    script = """
import os, sys
from pathlib import Path
from umbel.runtime.in_flight import InFlight
marks = InFlight(Path(sys.argv[1]))
with marks.calling("good", "a good one", 60, 0):
    pass
with marks.calling("bad", "assign of D.p", 60, 0):
    if sys.argv[2] == "exit":
        os._exit(1)
    print("in it", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", script, str(place.directory)]
    marks = InFlight(place.directory)
    subprocess.run([*command, "exit"], check=False)
    assert list(marks.left_behind()) == [("bad", "assign of D.p")]
    assert list(marks.left_behind()) == [], "it is said once"
    with subprocess.Popen([*command, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as lives:
        assert lives.stdout is not None
        assert lives.stdout.readline() == "in it\n"
        assert list(marks.left_behind()) == [], "a process that lives is not suspected"
        lives.kill()
    assert WorkerGuard(place)._known.suspects == {"bad"}
    assert "assign of D.p was running" in place.catalog.events()[0].text
    assert list((place.directory / FOLDER).glob("*")) == []


def test_a_process_that_handles_alarms_itself_is_not_ended_by_a_slow_call(place: Deployment) -> None:
    """As that of these tests: pytest limits their time, and the machine may be busy."""
    alarms, limits = list[int](), FunctionLimits(batch_seconds=0.05)
    before = signal.signal(signal.SIGALRM, lambda number, _: alarms.append(number))
    try:
        with guarded(WorkerGuard(place, limits)):
            assert applied(assign(lambda df: time.sleep(0.2) or df["a"]), rows(1, 2))["b"].to_list() == [1, 2]
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not alarms
    assert callable(before), "a test has a limit of time: else the calls of others in this file could end pytest"


def test_an_alarm_of_a_function_leaves_later_calls_timed(place: Deployment) -> None:
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        with InFlight(place.directory).calling("one", "a function", 60, 0):
            signal.signal(signal.SIGALRM, lambda *_: None)
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("has_thread", [True, False])
def test_a_fork_that_a_function_leaves_behind_is_no_second_worker(
    place: Deployment, tmp_path: Path, *, has_thread: bool
) -> None:
    def forks(df: Any) -> Any:
        if os.fork():
            os.wait()
        return df["a"]

    with guarded(WorkerGuard(place, has_thread=has_thread)):
        made = applied(assign(forks), rows(1, 2))
    with (tmp_path / "workers").open("a") as file:
        file.write(f"{os.getpid()}\n")
    assert made["b"].to_list() == [1, 2]
    assert (tmp_path / "workers").read_text() == f"{os.getpid()}\n"


def test_a_row_is_known_by_its_values(place: Deployment) -> None:
    one, two = row_hashes(rows(1, 1))
    assert one != two, "their times differ"
    again = rows(1).with_columns(pl.lit(7).alias("_seq"), pl.lit(-1).alias("_weight"))
    assert row_hashes(again) == [one]
    assert row_hashes(rows(1).select("s", "a", "t")) == [one]
    assert row_hashes(rows(1).with_columns(pl.lit(None).alias("more"))) == [one]


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan"])
def test_a_limit_is_a_positive_number(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("UMBEL_FUNCTION_ROW_SECONDS", text)
    with pytest.raises(InvalidValue, match="UMBEL_FUNCTION_ROW_SECONDS must be a positive number"):
        FunctionLimits.from_environment()


def test_a_call_has_the_seconds_of_its_rows() -> None:
    limits = FunctionLimits(row_seconds=0.5, batch_seconds=2.0)
    assert [limits.seconds(rows) for rows in (1, 2, 4, 5, 100)] == [0.5, 1.0, 2.0, 2.0, 2.0]
    assert limits.seconds_of_batch(1) == 2.0


def test_functions_of_several_threads_run_one_after_the_other(place: Deployment) -> None:
    """The mark of what is in flight and the limits are the process's."""
    inside: list[int] = []
    together: list[int] = []

    def slow(df: Any) -> Any:
        inside.append(1)
        together.append(len(inside))
        time.sleep(0.05)
        inside.pop()
        return df["a"].map(lambda a: 10 // a).astype("Int64")

    operator, guard = assign(slow), WorkerGuard(place)
    with guarded(guard):
        made = in_threads(lambda n: applied(operator, rows(n, 1)), range(4))
    assert [each["a"].to_list() for each in made] == [[1], [1, 1], [2, 1], [3, 1]]
    assert guard.counts == {operator.id: 1}
    assert set(together) == {1}


def test_no_more_rows_are_described_if_operators_without_functions_fail_at_once(
    place: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads described as many each; from then on the bound was negative, and all but the last rows were described."""
    monkeypatch.setattr(module, "LETTERS", 5)
    monkeypatch.setattr(threads._SETTINGS, "threads", 2)
    hashed = module._hash
    monkeypatch.setattr(module, "_hash", lambda row: time.sleep(0.02) or hashed(row))
    lists = schema(a=list[int], b=list[int])
    operator = Explode(parents=(leaf(lists),), pipeline="D.p", columns=("a", "b"))
    unequal = changes(lists, *(([1, n], [1, 2, n], n, n, 1) for n in range(8)))
    guard = WorkerGuard(place)
    with guarded(guard):
        for _ in range(2):
            assert [each.height for each in in_threads(lambda _: applied(operator, unequal), range(2))] == [0, 0]
    assert guard.counts == {operator.id: 32}
    assert len(guard.rejected) == 5


def test_functions_of_all_batches_run_in_one_thread(place: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection of SQLite works in its thread alone: rows were rejected once a batch had several shards or files."""
    monkeypatch.setattr(threads._SETTINGS, "threads", 3)
    made: dict[str, sqlite3.Connection] = {}

    def doubled(df: Any) -> Any:
        connection = made.setdefault("it", made.get("it") or sqlite3.connect(":memory:"))
        time.sleep(0.01)
        return df["a"].map(lambda a: connection.execute("SELECT 2 * ?", (a,)).fetchone()[0]).astype("Int64")

    judged = ByFunction(UserFunction.arrived(UserFunction(doubled).pickled))
    operator = Assign(parents=(leaf(ROWS),), pipeline="D.p", columns=(Assigned("b", Int(), judged),))
    for guard in (WorkerGuard(place, has_thread=True), WorkerGuard(place, has_thread=True)):
        with guarded(guard):
            found = in_threads(lambda n: applied(operator, rows(n))["b"].to_list(), range(6))
            judge = partial(guard.judge, judged, columns=dict(ROWS.dtypes), declared=Int())
            values = in_threads(lambda n, judge=judge: judge(rows(n)).values.to_list(), range(3))
        assert (found, guard.rejected) == ([[2 * n] for n in range(6)], [])
        assert values == [[2 * n] for n in range(3)]


def test_a_function_in_that_thread_may_lead_to_another_one(place: Deployment) -> None:
    guard, process = WorkerGuard(place, has_thread=True), module._process_of(place, os.getpid())
    assert process.in_thread(lambda: guard._process.in_thread(lambda: threading.current_thread().name)).startswith(
        "user"
    )
    with pytest.raises(KeyboardInterrupt):
        process.in_thread(lambda: (_ for _ in ()).throw(KeyboardInterrupt))
