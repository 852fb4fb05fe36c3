"""Random function bodies for the laws of the transformation, in the subset and beyond."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TEXTS = ("", "a", ",", "Dark", "12", "x", " ", "-", "none", "é", "$1", "\\", "9", "true", ".", "\n")
KINDS = "tifb"
"""Types: text, integer, float, truth value."""
INTS = ("0", "1", "2", "3", "-1", "7", "10", "100", "2147483648", "4611686018427387904", "9007199254740993", "-0")
FLOATS = ("0.0", "1.5", "0.1", "-2.0", "1e16", "1e300", "-0.0", "3.0")
BOUNDS = ("", "0", "1", "2", "5", "-1", "-3", "0", "300")
NAMES = ("x", "y", "len", "str", "datetime", "date")
MEMBERS = ("a", "b", "c", "")
LAYOUTS = ("%Y", "%Y-%m", "y%%", "%G")
METHODS = ("lower", "upper", "strip", "lstrip", "rstrip")
OTHERS = (
    "{0}.title()",
    "{0}.strip({1})",
    "{0}.zfill(5)",
    "{0}.count({1})",
    "{0}.isdigit()",
    "sorted({0})",
    "[each for each in {0}]",
    "(lambda v: v)({0})",
    "(z := {0})",
    "{0}[::2]",
    "{0} ** 2",
    "{0} << 1",
    "~{0}",
    "+{0}",
    "round({0})",
    "min({0}, {0})",
    "f'{{{0}:>5}}'",
    "f'{{{0}!r}}'",
    "1 < {0} < 5",
    "{0} is True",
    "math.floor({0})",
    "json.dumps({0})",
    "hashlib.md5({0}.encode()).hexdigest()",
    "re.sub('a', 'b', {0})",
    "int({0}, 16)",
    "{0}.split()[0]",
    "{0}.split({1}, 1)[0]",
    "{0}.get({1})",
    "isinstance({0}, str)",
    "dict(a={0})",
    "({0}, 1)",
    "{0}.replace({1}, {1}, 1)",
)


class CodeMaker:
    """A maker of function bodies.

    Args:
        seed: of its choices.
        beyond: the share of expressions outside of the documented subset.
        astray: the share of operands whose type is drawn anew.
    """

    def __init__(self, seed: int, beyond: float = 0.02, astray: float = 0.05) -> None:
        self.chance, self.beyond, self.astray = random.Random(seed), beyond, astray
        self.kinds: dict[str, str] = {}
        self.names: dict[str, str] = {}

    def body(self, kinds: dict[str, str]) -> str:
        """Return a function body.

        Args:
            kinds: the likely types of what can be read: `source_field`, and members of the record as `record.get("a")`.
        """
        self.kinds, self.names = kinds, {}
        return "\n".join(self._statements(self.chance.choice((1, 1, 2, 3)), 2))

    def _statements(self, count: int, depth: int) -> list[str]:
        found = list[str]()
        for _ in range(count - 1):
            found += self._statement(depth)
        kind = self._kind()
        ends = (f"return {self.value(kind, 3)}",) * 6 + ("pass", "return")
        return [*found, self.chance.choice(ends)]

    def _kind(self) -> str:
        return self.chance.choice(KINDS)

    def _statement(self, depth: int) -> list[str]:
        way = self.chance.randrange(10)
        if way < 5 or not depth:
            kind, name = self._kind(), self.chance.choice(NAMES)
            value = self.chance.choice((self.value(kind, 2), self._read()))
            self.names[name] = kind
            return [f"{name} = {value}"]
        if way == 5:
            return [self.chance.choice(("pass", "'text'", "x: int = 1", "assert source_field", "y = x = 1", "x += 1"))]
        branches = [f"if {self.value('b', 2)}:", *self._inner(depth)]
        if self.chance.random() < 0.3:
            branches += [f"elif {self.value('b', 1)}:", *self._inner(depth)]
        return [*branches, *(["else:", *self._inner(depth)] if self.chance.random() < 0.4 else [])]

    def _inner(self, depth: int) -> list[str]:
        before = dict(self.names)
        found = self._statements(self.chance.choice((1, 2)), depth - 1)
        if self.chance.random() < 0.5:
            found = found[:-1] or ["pass"]
        self.names = before if self.chance.random() < 0.7 else self.names
        return [f"  {each}" for each in found]

    def value(self, kind: str, depth: int) -> str:
        """Return an expression that is likely of a type."""
        if self.chance.random() < self.astray:
            kind = self._kind()
        if depth <= 0 or self.chance.random() < 0.15:
            return self._plain(kind)
        if self.chance.random() < self.beyond:
            return "(" + self.chance.choice(OTHERS).format(self.value(self._kind(), depth - 1), self._text()) + ")"
        if self.chance.random() < 0.2:
            return self._chosen(kind, depth - 1)
        ways = {"t": self._of_text, "i": self._of_number, "f": self._of_number, "b": self._of_truth}
        return ways[kind](kind, depth - 1)

    def _chosen(self, kind: str, depth: int) -> str:
        first, second = self.value(kind, depth), self.value(kind, depth)
        way = self.chance.randrange(3)
        if way:
            return f"({first} {'and' if way == 1 else 'or'} {second})"
        return f"({first} if {self.value('b', depth)} else {second})"

    def _plain(self, kind: str) -> str:
        known = [name for name, found in {**self.kinds, **self.names}.items() if found == kind]
        if known and self.chance.random() < 0.8:
            return self.chance.choice(known)
        return self._constant(kind) if self.chance.random() < 0.6 else self._read()

    def _constant(self, kind: str) -> str:
        if self.chance.random() < 0.05:
            return "None"
        listed = {"t": [self._text()], "i": INTS, "f": FLOATS, "b": ("True", "False")}
        return self.chance.choice(listed[kind])

    def _text(self) -> str:
        return json.dumps(self.chance.choice(TEXTS), ensure_ascii=False)

    def _read(self) -> str:
        found = self.chance.choice(("source_field", "source_field", "record", *self.names))
        for _ in range(self.chance.choice((1, 1, 2))):
            name = json.dumps(self.chance.choice(MEMBERS))
            other = self._constant(self._kind())
            ways = (f".get({name})", f".get({name}, {other})", f".get({name}, {{}})", f"[{name}]")
            found += self.chance.choice(ways)
        return found

    def _of_text(self, kind: str, depth: int) -> str:
        value, way = self.value(kind, depth), self.chance.randrange(8)
        low, high = self.chance.choice(BOUNDS), self.chance.choice(BOUNDS)
        ways: dict[int, Callable[[], str]] = {
            0: lambda: f"{value}.{self.chance.choice(METHODS)}()",
            1: lambda: f"{value}.{self.chance.choice(('removeprefix', 'removesuffix'))}({self._text()})",
            2: lambda: f"{value}.replace({self._text()}, {self._text()})",
            3: lambda: f"{value}.split({self._text()})[{low or 0}]",
            4: lambda: f"({value} + {self.value(kind, depth)})",
            5: lambda: f"str({self.value(self._kind(), depth)})",
            6: lambda: f"{value}[{low}:{high}]" if self.chance.random() < 0.7 else f"{value}[{low or 0}]",
            7: lambda: self._formatted(depth),
        }
        return ways[way]()

    def _formatted(self, depth: int) -> str:
        if self.chance.random() < 0.2:
            clock = self.chance.choice(("datetime.now()", "datetime.utcnow()", "date.today()"))
            return f"{clock}.strftime({self.chance.choice(LAYOUTS)!r})"
        parts = [self.value(self.chance.choice("tti"), depth) for _ in range(self.chance.randrange(3))]
        if any(sign in part for part in parts for sign in "'\\\n{"):  # what an f-string cannot have before 3.12
            return f"str({parts[0]})"
        return "f'" + "-".join(f"{{{part}}}" for part in parts) + "|'"

    def _of_number(self, kind: str, depth: int) -> str:
        way = self.chance.randrange(6)
        if way == 0:
            return f"{'int' if kind == 'i' else 'float'}({self.value(self.chance.choice('ttif'), depth)})"
        if way == 1:
            return f"len({self.value('t', depth)})" if kind == "i" else f"abs({self.value(kind, depth)})"
        if way == 2:
            return f"(-{self.value(kind, depth)})"
        left, right = (self.value(kind if self.chance.random() < 0.8 else "i", depth) for _ in range(2))
        signs = "+-*//%+-" if kind == "f" else ("+", "-", "*", "//", "%", "/")
        return f"({left} {self.chance.choice(signs)} {right})"

    def _of_truth(self, _: str, depth: int) -> str:
        kind, way = self._kind(), self.chance.randrange(7)
        value = self.value(kind, depth)
        if way == 0:
            return f"(not {value})"
        if way == 1:
            return f"({value} is {self.chance.choice(('None', 'not None'))})"
        if way == 2:
            listed = "".join(f"{self._constant(kind)}, " for _ in range(self.chance.randrange(4)))
            brackets = self.chance.choice(("({})", "[{}]", "{{{}}}"))
            return f"({value} {self.chance.choice(('in', 'not in'))} {brackets.format(listed)})"
        if way == 3:
            return f"({self._text()} {self.chance.choice(('in', 'not in'))} {self.value('t', depth)})"
        if way == 4:
            return f"{self.value('t', depth)}.{self.chance.choice(('startswith', 'endswith'))}({self._text()})"
        if way == 5:
            return f"bool({value})"
        return f"({value} {self.chance.choice(('==', '!=', '<', '<=', '>', '>='))} {self.value(kind, depth)})"


class RecordMaker:
    """A maker of records whose members mostly have types of their own.

    Args:
        seed: of its choices.
        values: the values to choose from, by type.
    """

    def __init__(self, seed: int, values: Mapping[str, Sequence[Any]]) -> None:
        self.chance, self.values = random.Random(seed), values
        self.kinds = {name: self.chance.choice("tttifbo") for name in "abc"}

    @property
    def readable(self) -> dict[str, str]:
        """The types of what code can read, by expression."""
        return {f"record.get('{name}')": kind for name, kind in self.kinds.items()}

    def lines(self) -> list[bytes]:
        """Return some records as JSON."""
        return [self._line() for _ in range(self.chance.randrange(1, 25))]

    def _line(self) -> bytes:
        record = {name: self._value(kind, 2) for name, kind in self.kinds.items() if self.chance.random() < 0.9}
        return json.dumps(record, ensure_ascii=self.chance.random() < 0.5).encode()

    def _value(self, kind: str, depth: int) -> Any:
        kind = kind if self.chance.random() < 0.85 else self.chance.choice("tifbnlo")
        if kind in self.values:
            return self.chance.choice(self.values[kind])
        if kind == "n" or not depth:
            return None
        inner = self.chance.choice(KINDS)
        if kind == "l":
            return [self._value(inner, depth - 1) for _ in range(self.chance.randrange(3))]
        return {
            name: self._value(inner, depth - 1) for name in self.chance.sample(MEMBERS, self.chance.randrange(1, 4))
        }
