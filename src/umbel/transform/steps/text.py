"""Steps on texts: case, white space, replacing, extraction, splitting, joining."""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from umbel.transform.native import ColumnKind, Native, NotNative, is_ascii
from umbel.transform.parameters import parameter
from umbel.transform.regexes import checked, is_never_empty, rust
from umbel.transform.registry import TransformStep, step

WHITESPACE = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"
"""The ASCII characters that Python strips."""


def text_of(value: Any) -> str:
    """Return a value that must be a text.

    Raises:
        TypeError: it is none.
    """
    if type(value) is not str:
        raise TypeError(f"expected a text, found {type(value).__name__}")
    return value


@step
class LowerStep(TransformStep):
    """Write a text in lower case."""

    name = "lower"

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        return text_of(value).lower()

    def native(self, value: Native) -> Native:
        text = value.of_kind(ColumnKind.TEXT)
        return text.then(text.expr.str.to_lowercase(), None, is_ascii(text.expr))


@step
class UpperStep(TransformStep):
    """Write a text in upper case."""

    name = "upper"

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        return text_of(value).upper()

    def native(self, value: Native) -> Native:
        text = value.of_kind(ColumnKind.TEXT)
        return text.then(text.expr.str.to_uppercase(), None, is_ascii(text.expr))


@step
class TrimStep(TransformStep):
    """Remove white space from both ends of a text."""

    name = "trim"

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        return text_of(value).strip()

    def native(self, value: Native) -> Native:
        text = value.of_kind(ColumnKind.TEXT)
        return text.then(text.expr.str.strip_chars(WHITESPACE), None, is_ascii(text.expr))


@step
class ReplaceStep(TransformStep):
    """Replace every occurrence of a text, or every match of a regular expression."""

    name = "replace"
    pattern: str = parameter("The text to replace, or the regular expression, in Python's syntax.")
    by: str = parameter("The replacement; for a regular expression with `\\1`, `\\g<name>` for groups.")
    regex: bool = parameter("Whether the pattern is a regular expression.", default=False)

    def __post_init__(self) -> None:
        if self.regex:
            try:
                checked(self.pattern).sub(self.by, "")
            except (re.error, IndexError) as error:
                raise ValueError(f"{self.by!r} is no replacement of {self.pattern!r}: {error}") from None

    @property
    def needs_limits(self) -> bool:
        return self.regex

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        text = text_of(value)
        return re.sub(self.pattern, self.by, text) if self.regex else text.replace(self.pattern, self.by)

    def native(self, value: Native) -> Native:
        text = value.of_kind(ColumnKind.TEXT)
        if not self.regex:
            if not self.pattern:
                raise NotNative("an empty pattern matches between all characters")
            return text.then(text.expr.str.replace_all(self.pattern, self.by, literal=True))
        if "\\" in self.by or not is_never_empty(self.pattern):
            raise NotNative("a replacement with groups, or a pattern that may match the empty text")
        found = text.expr.str.replace_all(rust(self.pattern), self.by.replace("$", "$$"))
        return text.then(found, None, is_ascii(text.expr))


@step
class RegexExtractStep(TransformStep):
    """Return the first match of a regular expression, or one of its groups.

    It is null where there is no match.
    """

    name = "regex_extract"
    pattern: str = parameter("The regular expression, in Python's syntax.", check=checked)
    group: int = parameter("The number of the group; 0 is the whole match.", default=0)

    def __post_init__(self) -> None:
        groups = re.compile(self.pattern).groups
        if not 0 <= self.group <= groups:
            raise ValueError(f"the pattern has {groups} groups, there is no group {self.group}")

    @property
    def needs_limits(self) -> bool:
        return True  # Python's regular expressions may try without end

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        found = re.search(self.pattern, text_of(value))
        return None if found is None else found[self.group]

    def native(self, value: Native) -> Native:
        text = value.of_kind(ColumnKind.TEXT)
        return text.then(text.expr.str.extract(rust(self.pattern), self.group), None, is_ascii(text.expr))


@step
class SplitStep(TransformStep):
    """Split a text into a list of texts."""

    name = "split"
    separator: str = parameter("The text between two elements.", default=",")

    def __post_init__(self) -> None:
        if not self.separator:
            raise ValueError("'separator' must not be empty")

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        return text_of(value).split(self.separator)


@step
class JoinStep(TransformStep):
    """Join a list of texts into one text."""

    name = "join"
    separator: str = parameter("The text put between two elements.", default=",")

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        if type(value) is not list:
            raise TypeError(f"expected a list, found {type(value).__name__}")
        return self.separator.join(map(text_of, value))


def contains(text: pl.Expr, pattern: str) -> pl.Expr:
    """Return the condition that a whole text matches a regular expression of Rust's."""
    return text.str.contains(f"^(?:{pattern})\\z")
