"""Environment selectors (api §3.4)."""

from itertools import combinations, product
from typing import Any

import pytest

from tests.unit.refusals import Cases, check_refused
from umbel.definitions.env import Selector, check_env, selector

refused = Cases()
ENVS = ("a", "b", "c", "elsewhere")


@pytest.mark.parametrize(
    ("env", "selected"),
    [
        (None, ENVS),
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ("~a", ("b", "c", "elsewhere")),
        (["~a", "~b"], ("c", "elsewhere")),
    ],
)
def test_selects(env: Any, selected: tuple[str, ...]) -> None:
    found = selector(env, "x")
    assert tuple(each for each in ENVS if found.selects(each)) == selected
    assert found.selects(None)


def test_what_two_selectors_share_is_what_some_environment_says() -> None:
    names = [frozenset(some) for count in (1, 2) for some in combinations("abc", count)]
    for (one, no), (other, nor) in product(product(names, (False, True)), repeat=2):
        first, second = Selector(one, no), Selector(other, nor)
        naive = any(first.selects(each) and second.selects(each) for each in ENVS)
        assert bool(first.shared_with(second)) == naive


for passed in ("", " ", "~", "a b", ["a", "~b"], ["~"], ["", "a"]):
    refused.add(f"selector {passed!r}", lambda passed=passed: selector(passed, "here"), ValueError, "here")
for passed in (3, [3], {"a": 1}.values()):
    refused.add(f"selector {passed!r}", lambda passed=passed: selector(passed, "here"), TypeError, "here")
refused.add("empty list", lambda: selector([], "source w"), ValueError, "source w: env is an empty list")
refused.add("empty tuple", lambda: selector((), "x"), ValueError, "empty list")
refused.add("twice ~", lambda: selector("~~a", "x"), ValueError, "invalid env '~~a'")
refused.add("commit ~a", lambda: check_env("~a"), ValueError, "~a")
refused.add("commit empty", lambda: check_env(""), ValueError)
refused.add("commit list", lambda: check_env(["a"]), TypeError, "list")  # type: ignore[arg-type]


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    check_refused(define, error, texts)
