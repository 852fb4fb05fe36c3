"""Tables of query results, and parsing of NAME=VALUE arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import typer


def pairs(texts: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE texts into a mapping; values are JSON, else text."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"'{text}' is not NAME=VALUE")
        try:
            found[name] = orjson.loads(value)
        except orjson.JSONDecodeError:
            found[name] = value
    return found


def show(columns: Mapping[str, Sequence[Any]]) -> None:
    """Print columns: a single row downwards, more rows as a table."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False) if _height(columns) == 1 else Table(box=None)
    if _height(columns) == 1:
        for name, values in columns.items():
            table.add_row(Text(name), Text(_text(values[0])))
    else:
        for name in columns:
            table.add_column(Text(name))
        for row in zip(*columns.values(), strict=True):
            table.add_row(*(Text(_text(value)) for value in row))
    Console().print(table)


def _height(columns: Mapping[str, Sequence[Any]]) -> int:
    return len(next(iter(columns.values()), ()))


def _text(value: Any) -> str:
    return "null" if value is None else str(value)
