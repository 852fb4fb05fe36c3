"""Tables of query results, and parsing of NAME=VALUE arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import orjson
import typer

if TYPE_CHECKING:
    from rich.table import Table

    from umbel.client.connection import HttpConnection

TEXT = re.compile(r"(Optional\[)?(str\]?$|regex\(|oneof\(str,|Decimal\[)")
"""The names of types whose values are read as texts: a JSON number has fewer digits than a decimal."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that a terminal may obey, or a table leaves out."""
WIDEST = 1_000_000
"""The most columns of a table that is printed elsewhere than on a terminal."""


def pairs(texts: Sequence[str], types: Mapping[str, str], owner: str = "") -> dict[str, Any]:
    """Parse NAME=VALUE texts into a mapping.

    Values are JSON, else text. Those of a field of texts or decimals are text, unless null or in quotes: 1.10 is not 1.1 there.

    Args:
        texts: the arguments of a command.
        types: the names of types, by NAME.
        owner: what stands before NAME in `types`.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"'{text}' is not NAME=VALUE")
        if name in found:
            raise typer.BadParameter(f"'{name}' is given twice; a command is about one value of each name")
        found[name] = _parsed(value, is_text=TEXT.match(types.get(owner + name, "")) is not None)
    return found


def _parsed(text: str, *, is_text: bool) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return text if is_text and not isinstance(value, str | None) else value


def committed_types(
    connection: HttpConnection, branch: str, kind: Literal["datasets", "featuresets"]
) -> dict[str, str]:
    """Return the names of the types of all fields or features."""
    members = "fields" if kind == "datasets" else "features"
    found = connection.send("GET", "/api/v1/xray", branch).json()[kind]
    return {f"{each['name']}.{name}": dtype for each in found for name, dtype in each[members].items()}


def visible(text: str) -> str:
    r"""Return a text with its control characters escaped, which a terminal would obey.

    >>> visible("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def print_table(table: Table) -> None:
    """Print a table; where that is no terminal its rows are whole lines.

    Programs search these. A narrow terminal breaks words that do not fit: nothing is cut off.
    """
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, console.measure(table, options=console.options.update_width(WIDEST)).maximum)
    for column in table.columns:
        column.overflow = "fold"
    console.print(table)


def show(columns: Mapping[str, Sequence[Any]]) -> None:
    """Print columns: a single row downwards, more rows as a table."""
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
    print_table(table)


def _height(columns: Mapping[str, Sequence[Any]]) -> int:
    return len(next(iter(columns.values()), ()))


def _text(value: Any) -> str:
    return "null" if value is None else visible(str(value))
