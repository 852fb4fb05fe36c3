"""Docstrings as Markdown: paragraphs, sections of arguments, examples."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

SECTION = re.compile(r"(Args|Raises|Errors|Returns|Yields):")
EXAMPLES = re.compile(r"^Examples?:\n((?:(?: .*)?\n?)+)", re.MULTILINE)
"""Commands: the indented lines below the heading."""
ENTRY = re.compile(r"(\*{0,2}[\w.]+): (.*)")


def rendered(text: str) -> str:
    """Return a docstring as Markdown."""
    before, *rest = EXAMPLES.split(inspect.cleandoc(text or ""))
    parts = [*_blocks(before)]
    for commands, after in zip(rest[::2], rest[1::2], strict=True):
        parts += [fenced("sh", inspect.cleandoc("\n" + commands)), *_blocks(after)]
    return "\n\n".join(parts)


def docstring_of(obj: Any) -> str:
    """Return the docstring of an object, of the class that defines the method where it is inherited."""
    return inspect.getdoc(obj) or ""


def first_line(obj: Any) -> str:
    """Return the first line of an object's docstring."""
    return escaped(docstring_of(obj).partition("\n")[0])


def escaped(text: str) -> str:
    """Return prose with the characters escaped that Markdown would read as HTML or as emphasis."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<*|])", r"\\\1", part) for part in parts)


def signature(obj: Any, name: str, *, bound: bool = False) -> str:
    """Return a call of an object with its parameters, as a reader would write it.

    Args:
        obj: a function or a class.
        name: its name in the call.
        bound: True if its first parameter is not written, as that of a method.
    """
    found = inspect.signature(obj)
    parameters = list(found.parameters.values())[bound:]
    shown = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    return f"{name}{found.replace(parameters=shown, return_annotation=inspect.Signature.empty)}"


def _blocks(text: str) -> Iterator[str]:
    for paragraph in filter(None, re.split(r"\n\s*\n", text.strip())):
        lines = paragraph.splitlines()
        head = SECTION.fullmatch(lines[0])
        if lines[0].startswith(">>>"):
            yield fenced("pycon", paragraph)
        elif head is not None:
            yield f"**{head[1]}**"
            yield "\n".join(_entries(inspect.cleandoc("\n".join(lines[1:]))))
        else:
            yield escaped(paragraph)


def _entries(text: str) -> Iterator[str]:
    for line in text.splitlines():
        found = ENTRY.fullmatch(line)
        yield f"* `{found[1]}`: {escaped(found[2])}" if found else f"  {escaped(line.strip())}"


def fenced(kind: str, text: str) -> str:
    """Return a block of code."""
    return f"```{kind}\n{text}\n```"


def table(*rows: tuple[str, ...]) -> str:
    """Return a table; the first row is its head."""
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join((head, f"|{'---|' * len(rows[0])}", *rest))


def code(text: object) -> str:
    """Return text as inline code, empty for an empty text."""
    return f"`{text}`" if str(text) else ""
