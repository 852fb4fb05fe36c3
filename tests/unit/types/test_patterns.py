"""Regular expressions on hostile texts, and that they say what Python's engine says."""

from __future__ import annotations

import re
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel.dtypes import regex
from umbel.types import patterns
from umbel.types.patterns import Pattern

LINEAR = ["[a-z]+", r"^\d{3}-\d{4}$", "", "a|b", "(foo|bar)$", r"(\d{1,3}\.){3}\d{1,3}$", "(?i)x[^y]*", "^[^@]+@[^@]+$"]
EXPONENTIAL = [
    "(a|aa)+$",
    "(a|a?)+b",
    "(?:a|aa)+?$",
    "(a|aa)+(?=b)",
    r"(a|aa)+\1$",
    "((a|aa){2,9}){2,9}b",
    "(x|a|aa)*?b",
]
POLYNOMIAL = [r"\s*\s*\s*\s*$", "a*a*a*a*b", ".*.*.*=.*"]
HOSTILE = "a" * 60 + "!"
TEXTS = st.text("ab1_@. -xyzé", max_size=30)


@pytest.mark.parametrize("text", LINEAR)
@pytest.mark.parametrize("is_search", [False, True])
def test_python_decides_where_the_ways_are_bounded(text: str, is_search: bool) -> None:
    pattern = Pattern(text, is_search=is_search)
    assert pattern._is_fast("a" * 80)
    assert "_limited" not in vars(pattern)


@pytest.mark.parametrize("text", EXPONENTIAL)
def test_a_pattern_with_exponentially_many_ways_ends_in_time(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 0.1)
    for is_search in (False, True):
        pattern = Pattern(text, is_search=is_search)
        assert not pattern._is_fast(HOSTILE)
        begin = time.process_time()
        assert pattern.matches([HOSTILE + f"{number}" for number in range(20)]) == [False] * 20
        assert time.process_time() - begin < 3


@pytest.mark.parametrize("text", POLYNOMIAL)
def test_a_pattern_with_a_power_of_ways_ends_in_time_for_long_texts(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 0.1)
    pattern, value = Pattern(text), " a" * 50_000 + "\n\n!"
    assert pattern._is_fast("a")
    assert not pattern._is_fast(value)
    begin = time.process_time()
    pattern.matches([value])
    assert time.process_time() - begin < 3


@given(
    text=st.sampled_from([*LINEAR, *EXPONENTIAL, *POLYNOMIAL, r"(\w+\.)*\w+@\w+", r"\b(a|b)+\b"]),
    values=st.lists(TEXTS),
)
def test_both_engines_say_the_same(text: str, values: list[str]) -> None:
    short = [value[:12] for value in values]
    assert Pattern(text).matches(short) == [re.match(text, value) is not None for value in short]
    assert Pattern(text, is_search=True).matches(short) == [re.search(text, value) is not None for value in short]


def test_other_threads_run_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 10.0)
    done = threading.Event()
    monkeypatch.setattr(Pattern, "_note", lambda self, value: done.set())
    monkeypatch.setattr(patterns, "SECONDS_OF_CHARACTER", 0.0)
    threading.Thread(target=Pattern("(a|aa)+$").matches, args=([HOSTILE],), daemon=True).start()
    begin = time.monotonic()
    time.sleep(0.1)
    assert time.monotonic() - begin < 5
    assert not done.is_set()


def test_a_text_that_takes_too_long_is_refused_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 0.05)
    checked = regex("(a|aa)+$").dtype().convert(["aaa", HOSTILE, "b"])
    assert set(checked.errors) == {1, 2}
    assert checked.errors[1].endswith(", and to match it takes too long")
    assert checked.errors[2] == "expected regex('(a|aa)+$'), got 'b' (str)"


def test_no_more_texts_are_remembered_than_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "NOTED", 3)
    pattern = Pattern("a")
    for number in range(10):
        pattern._note(f"{number}")
    assert [pattern.is_slow(f"{number}") for number in (6, 7, 8, 9)] == [False, True, True, True]
