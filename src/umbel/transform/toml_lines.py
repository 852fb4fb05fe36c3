"""Lines of the keys and elements of a TOML text, which `tomllib` does not report."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import Any

TomlPath = tuple[str | int, ...]
"""Keys of tables and numbers of elements."""

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SIMPLE = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY = re.compile(rf"{_SIMPLE}(?:[ \t]*\.[ \t]*{_SIMPLE})*")
_STRING = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}(?!")|\'\'\'.*?'{3,5}(?!')|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\'''', re.DOTALL
)
_SCALAR = re.compile(r"[^,\]}#\r\n]*")
_BLOCK = re.compile(r"""(?:\"{3}|'{3})\r?\n""")


@dataclass(frozen=True, slots=True)
class TomlLine:
    """The place of a value.

    Args:
        line: where it begins, from 1; of a text in several lines, the first of its own.
        key_line: of its key; 0 if it has none.
        breaks: how many lines end in it.
    """

    line: int
    key_line: int = 0
    breaks: int = 0


def toml_lines(text: str) -> dict[TomlPath, TomlLine]:
    r"""Return the place of each value of a valid TOML text, by its path.

    >>> toml_lines("a = [\n  1,\n  2,\n]")["a", 1].line
    3
    """
    scan = _Scan(text)
    scan.document()
    return scan.found


class _Scan:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._breaks = [found.start() for found in re.finditer("\n", text)]
        self._counts = Counter[TomlPath]()
        self.found: dict[TomlPath, TomlLine] = {}

    def document(self) -> None:
        table: TomlPath = ()
        while self._skipped() < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._member(table)

    def _header(self) -> TomlPath:
        """Read `[a.b]` or `[[a.b]]`; return the path of the table."""
        line, is_element = self._line(), self._text.startswith("[[", self._at)
        self._at += 1 + is_element
        self._skipped()
        table: TomlPath = ()
        for name in self._key():
            table = (*table, name)
            self.found.setdefault(table, TomlLine(line, line))
            if self._counts[table]:
                table = (*table, self._counts[table] - 1)
        if is_element:
            array = table[:-1] if isinstance(table[-1], int) else table
            table = (*array, self._counts[array])
            self._counts[array] += 1
        self.found[table] = TomlLine(line, line)
        self._skipped()
        self._at += 1 + is_element
        return table

    def _member(self, table: TomlPath) -> None:
        """Read `key = value`."""
        line = self._line()
        for name in self._key():
            table = (*table, name)
            self.found.setdefault(table, TomlLine(line, line))
        self._skipped()
        self._at += 1  # =
        self._skipped()
        first = self._line() + bool(_BLOCK.match(self._text, self._at))
        self._value(table)
        self.found[table] = TomlLine(first, line, self._line() - first)

    def _value(self, path: TomlPath) -> None:
        opening = self._text[self._at : self._at + 1]
        if opening == "[":
            self._elements(path)
        elif opening == "{":
            self._members(path)
        else:
            pattern = _STRING if opening in {'"', "'"} else _SCALAR
            found = pattern.match(self._text, self._at)
            self._at = found.end() if found else len(self._text)

    def _elements(self, path: TomlPath) -> None:
        self._at += 1
        number = 0
        while self._skipped() < len(self._text) and self._text[self._at] != "]":
            self.found[*path, number] = TomlLine(self._line())
            self._value((*path, number))
            number += 1
            self._comma()
        self._at += 1

    def _members(self, path: TomlPath) -> None:
        self._at += 1
        while self._skipped() < len(self._text) and self._text[self._at] != "}":
            self._member(path)
            self._comma()
        self._at += 1

    def _comma(self) -> None:
        if self._text.startswith(",", self._skipped()):
            self._at += 1

    def _key(self) -> list[str]:
        found = _KEY.match(self._text, self._at)
        if found is None:
            self._at = len(self._text)
            return [""]
        self._at = found.end()
        names = list[str]()
        inner: Any = tomllib.loads(f"{found[0]} = 0")
        while isinstance(inner, dict):
            ((name, inner),) = inner.items()
            names.append(name)
        return names

    def _skipped(self) -> int:
        """Skip white space and comments; return the position."""
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at

    def _line(self) -> int:
        return bisect_left(self._breaks, self._at) + 1
