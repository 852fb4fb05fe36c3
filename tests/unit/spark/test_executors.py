"""When jobs have waited long enough for executors that are gone."""

from __future__ import annotations

from umbel.spark.executors import Absence


def seen(absence: Absence, *observations: tuple[int, int, float]) -> list[bool]:
    return [absence.is_over(*each) for each in observations]


def test_a_job_that_lost_all_executors_waits_for_so_long() -> None:
    absence = Absence(patience=10)
    assert seen(absence, (2, 1, 0), (0, 1, 1), (0, 1, 5), (0, 1, 10.9)) == [False] * 4
    assert seen(absence, (0, 1, 11)) == [True]


def test_an_executor_that_comes_in_between_begins_the_time_anew() -> None:
    absence = Absence(patience=10)
    assert seen(absence, (1, 1, 0), (0, 1, 1), (1, 1, 9), (0, 1, 12), (0, 2, 20)) == [False] * 5
    assert seen(absence, (0, 1, 22)) == [True]


def test_without_a_job_nothing_waits() -> None:
    absence = Absence(patience=10)
    assert seen(absence, (1, 1, 0), (0, 0, 1), (0, 0, 50), (0, 1, 51), (0, 1, 60)) == [False] * 5
    assert seen(absence, (0, 1, 61)) == [True]


def test_executors_that_never_came_are_no_loss() -> None:
    assert seen(Absence(patience=10), (0, 1, 0), (0, 1, 1000)) == [False, False]
