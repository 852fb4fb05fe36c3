"""User functions travel by value, and their digest changes exactly when their behaviour does."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from umbel.errors import InvalidValue
from umbel.functions.user_function import UserFunction

LOCK = threading.Lock()


def digest_of(source: str, name: str = "f") -> str:
    space: dict[str, object] = {"__name__": "__main__"}
    exec(textwrap.dedent(source), space)
    return UserFunction(space[name]).digest  # type: ignore[arg-type]


EQUAL = [
    ("def f(x): return x + 1", "# moved\n\n\ndef f(x):\n    return x + 1"),
    ("a = 1\ndef f(x): return x + a", "b = 7\na = 1\ndef f(x): return x + a"),
    ("def f(x): return x in {'a', 'b', 'c'}", "def f(x): return x in {'c', 'a', 'b'}"),
    ("def f(n): return n and f(n - 1)", "def f(n): return n and f(n - 1)"),
    ("def f(x): return x.a\na = 1", "def f(x): return x.a\na = 2"),
]

DIFFERENT = [
    ("def f(x): return x + 1", "def f(x): return x + 2"),
    ("a = 1\ndef f(x): return x + a", "a = 2\ndef f(x): return x + a"),
    ("def f(x, y=1): return y", "def f(x, y=2): return y"),
    ("def g(x): return x\ndef f(x): return g(x)", "def g(x): return -x\ndef f(x): return g(x)"),
    (
        "class G:\n def g(self): return 1\ndef f(x): return G().g()",
        "class G:\n def g(self): return 2\ndef f(x): return G().g()",
    ),
    (
        "class M(type):\n def __call__(cls): return 1\nclass G(metaclass=M): pass\ndef f(x): return G()",
        "class M(type):\n def __call__(cls): return 2\nclass G(metaclass=M): pass\ndef f(x): return G()",
    ),
    ("def make(n):\n return lambda x: x + n\nf = make(1)", "def make(n):\n return lambda x: x + n\nf = make(2)"),
    (
        "def f(x): return [g(y) for y in x]\ndef g(y): return 1",
        "def f(x): return [g(y) for y in x]\ndef g(y): return 2",
    ),
    ("import math\ndef f(x): return math.sin(x)", "import math\ndef f(x): return math.cos(x)"),
    ("d = {'a': [1]}\ndef f(x): return d", "d = {'a': [2]}\ndef f(x): return d"),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_digest_stays(one: str, other: str) -> None:
    assert digest_of(one) == digest_of(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_digest_changes(one: str, other: str) -> None:
    assert digest_of(one) != digest_of(other)


HELPERS = """
import re
import functools
import numpy as np
from dataclasses import dataclass
import other

PATTERN = re.compile("a+")
TABLE = np.array([1.0, 2.0])
NAMES = {"x", "y", "z"}

@dataclass
class Rate:
    value: float
    def of(self, x):
        return self.value * x

@functools.lru_cache(maxsize=None)
def cached(x):
    return x + other.offset(x)

def work(x):
    return (Rate(2.0).of(x), cached(x), bool(PATTERN.match("aa")), float(TABLE.sum()), sorted(NAMES), other.NUMBER)
"""
OTHER = """
import threading
lock = threading.Lock()
NUMBER = 5
def offset(x):
    return NUMBER * x
"""
SEND = """
import sys, pickle, mine
from umbel.functions.user_function import UserFunction
function = UserFunction(mine.work)
sys.stdout.buffer.write(pickle.dumps((function, function.digest)))
"""
READ = """
import sys, pickle
function, digest = pickle.load(sys.stdin.buffer)
assert "mine" not in sys.modules
assert function.digest == digest
print(function(3))
"""


def run(
    program: str, where: Path, stdin: bytes = b"", seed: int = 0, arguments: tuple[str, ...] = (), **environment: str
) -> bytes:
    path = ":".join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=where,
        input=stdin,
        capture_output=True,
        check=False,
        env={"PYTHONPATH": path, "PYTHONHASHSEED": str(seed), **environment},
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_travels_to_a_process_without_the_module(tmp_path: Path) -> None:
    home, abroad = tmp_path / "home", tmp_path / "abroad"
    home.mkdir()
    abroad.mkdir()
    (home / "mine.py").write_text(HELPERS)
    (home / "other.py").write_text(OTHER)
    sent = run(SEND, home, seed=1)
    assert run(READ, abroad, sent).decode().strip() == "(6.0, 18, True, 3.0, ['x', 'y', 'z'], 5)"
    again = run(SEND, home, seed=2)
    assert pickle.loads(sent)[1] == pickle.loads(again)[1]
    assert any(r.startswith("numpy==") for r in pickle.loads(sent)[0].pickled.requirements)


@pytest.mark.parametrize("changed", ["one", "two", "three", "CONSTANT"])
def test_what_a_module_has_counts_when_anything_mentions_it(tmp_path: Path, changed: str) -> None:
    (tmp_path / "used.py").write_text("def one(): return 1\ndef two(): return 1\ndef three(): return 1\nCONSTANT = 1\n")
    program = """
import sys
sys.path.insert(0, ".")
import used
from umbel.functions.user_function import UserFunction
def helper(): return used.two() + inner()
def inner(): return used.CONSTANT
def work(): return used.one() + helper()
digest = UserFunction(work).digest
setattr(used, sys.argv[1], 2 if sys.argv[1] == "CONSTANT" else lambda: 2)
print(digest != UserFunction(work).digest)
"""
    (tmp_path / "main.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "main.py", changed],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(p for p in sys.path if p)},
    )
    assert done.stdout.strip() == str(changed != "three")


SHOP = """
from shop import prices as aliased
import plain.deep.rates as rates
import plain.deep.rates

def at_the_top(x):
    return aliased.double(x) + rates.RATE + plain.deep.rates.RATE

def of_a_name(x):
    from shop.prices import double
    return double(x)

def relative(x):
    from . import prices
    from .prices import double as twice
    return prices.double(x) + twice(x)

def dotted(x):
    import shop.prices
    import plain.deep.rates as other
    return shop.prices.double(x) + other.RATE

def of_itself(x):
    import shop.work as me
    return me.relative(x) + sum((lambda: me.of_a_name(y))() for y in [x])

def nested(x):
    def inner():
        from shop.prices import lazy
        return lazy(x)
    return inner()

def optional(x):
    try:
        from shop.absent import double
    except ImportError:
        double = float
    return double(x)
"""
PRICES = """
FACTOR = 2
def double(x):
    return FACTOR * x
def lazy(x):
    from shop.work import of_a_name
    import math
    return math.floor(of_a_name(x))
"""
SEND_SHOP = """
import sys, pickle
from shop import work
from umbel.functions.user_function import UserFunction
name, factor = sys.argv[1:]
work.aliased.FACTOR = int(factor)
function = UserFunction(getattr(work, name))
sys.stdout.buffer.write(pickle.dumps((function, getattr(work, name)(3))))
"""
READ_SHOP = """
import sys, pickle
function, expected = pickle.load(sys.stdin.buffer)
assert function(3) == expected, (function(3), expected)
assert not {"shop", "plain"} & set(sys.modules)
"""


@pytest.mark.parametrize("name", ["at_the_top", "of_a_name", "relative", "dotted", "of_itself", "nested", "optional"])
def test_modules_imported_anywhere_travel(tmp_path: Path, name: str) -> None:
    home, abroad = tmp_path / "home", tmp_path / "abroad"
    (home / "shop").mkdir(parents=True)
    (home / "plain" / "deep").mkdir(parents=True)  # folders without __init__.py
    abroad.mkdir()
    (home / "shop" / "__init__.py").touch()
    (home / "shop" / "work.py").write_text(SHOP)
    (home / "shop" / "prices.py").write_text(PRICES)
    (home / "plain" / "deep" / "rates.py").write_text("RATE = 5\n")
    sent = run(SEND_SHOP, home, arguments=(name, "2"))
    run(READ_SHOP, abroad, sent)
    other = run(SEND_SHOP, home, arguments=(name, "7"))
    assert (pickle.loads(sent)[0].digest != pickle.loads(other)[0].digest) == (name != "optional")


ODD = """
from functools import cached_property
from os import environ

LIMIT = 4

class Rate:
    @cached_property
    def value(self):
        return 2.5

def with_cached_property(x):
    rate = Rate()
    return rate.value * x + rate.value

def with_class_in_body(x):
    class Capped:
        limit = LIMIT
        def of(self, value):
            return min(value, self.limit)
    return Capped().of(x + 3)

def with_environment(x):
    return environ.get("PLACE")
"""
SEND_ODD = """
import sys, pickle, odd
from umbel.functions.user_function import UserFunction
function = UserFunction(getattr(odd, sys.argv[1]))
sys.stdout.buffer.write(pickle.dumps((function, function.digest)))
"""


@pytest.mark.parametrize(
    ("name", "result"), [("with_cached_property", 10.0), ("with_class_in_body", 4), ("with_environment", "abroad")]
)
def test_what_python_does_not_pickle_as_it_is(tmp_path: Path, name: str, result: object) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    sent = run(SEND_ODD, tmp_path, arguments=(name,), PLACE="at home")
    assert b"at home" not in sent
    read = "import sys, pickle\nprint(pickle.load(sys.stdin.buffer)[0](3))"
    assert run(read, Path("/"), sent, PLACE="abroad").decode().strip() == str(result)
    again = run(SEND_ODD, tmp_path, arguments=(name,), PLACE="elsewhere")
    assert pickle.loads(sent)[1] == pickle.loads(again)[1]


def test_what_cannot_travel_is_named() -> None:
    def guarded(x: int) -> int:
        with LOCK:
            return x

    with pytest.raises(InvalidValue, match=r"function 'guarded'.*'LOCK' \(a lock\) cannot travel"):
        _ = UserFunction(guarded).digest


@pytest.mark.parametrize("mode", ["w", "r", "rb"])
def test_an_open_file_in_a_closure_is_named(tmp_path: Path, mode: str) -> None:
    (tmp_path / "f").touch()
    with (
        (tmp_path / "f").open(mode) as handle,
        pytest.raises(InvalidValue, match=r"'handle' \(a \w+\) cannot travel.*open file"),
    ):
        _ = UserFunction(lambda x: handle.name).digest


def test_any_callable_will_do() -> None:
    assert UserFunction(functools.partial(int, base=2))("11") == 3
    assert pickle.loads(pickle.dumps(UserFunction(functools.partial(int, base=2))))("11") == 3
    assert UserFunction(len).name == "len"


def test_includes_take_part() -> None:
    def func(x: int) -> int:
        return x

    def one() -> int:
        return 1

    def two() -> int:
        return 2

    assert UserFunction(func, (one,)).digest != UserFunction(func, (two,)).digest
