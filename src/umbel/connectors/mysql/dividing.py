"""Dividing the values of an indexed column into ranges of about equally many rows.

MySQL has no samples of tables. Its optimizer estimates the rows of a range by looking into the index, without reading them:
so the largest range is halved by value, at a value that exists, until all are small. Values that are far from evenly
distributed, such as numbers with gaps, take some halvings more.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from umbel.connectors.mysql.reading import literal
from umbel.connectors.mysql.server import rows
from umbel.connectors.sql.columns import BYTES, DATE, INT, NUMERIC, TEXT, TIMES, Column
from umbel.connectors.sql.ranges import MOST_RANGES, Range, ranges_between

if TYPE_CHECKING:
    from pymysql import Connection

LARGE, RANGE_ROWS = 500_000, 200_000
"""Rows of a table from which on it is first read in ranges, and rows of a range."""
HALVINGS = 80
"""Attempts to find a value inside of a range."""
_FIRST, _COUNT, _DIGITS = 0x20, 0x5F, 24
"""The characters that texts are halved by, those of ASCII, and how many of them."""


@dataclass(frozen=True)
class Division:
    """The values of a column.

    Args:
        connection: to the server.
        table: the table's quoted name.
        column: the column.
        condition: on the rows.
    """

    connection: Connection[Any]
    table: str
    column: Column
    condition: str = "TRUE"

    def estimated(self, low: str | None = None, high: str | None = None) -> int:
        """Return the approximate number of rows from one value on and before another one."""
        from pymysql.cursors import DictCursor

        with self.connection.cursor(DictCursor) as cursor:
            cursor.execute(f"EXPLAIN {self._select(self._name, low, high)}")
            found = cursor.fetchone() or {}
        return int(found.get("rows") or 0)

    def ends(self) -> tuple[str, str] | None:
        """Return the lowest and the highest value, None for no rows."""
        low, high = rows(self.connection, self._select(f"{self._read('MIN')}, {self._read('MAX')}"))[0]
        return None if low is None else (low, high)

    def ranges(self, size: int, count: int) -> list[Range] | str:
        """Return ranges of about equally many rows, or why there are none.

        The last one ends with the highest value.

        Args:
            size: the estimated rows of all.
            count: of the connections that read them.
        """
        ends = self.ends()
        if ends is None:
            return "it has no rows"
        target = max(RANGE_ROWS, size // MOST_RANGES) if size >= 2 * count * RANGE_ROWS else size // (2 * count)
        bounds = self.bounds(*ends, target)
        return ranges_between(bounds, ends[1]) if bounds else f"its {self.column.name} cannot be divided"

    def bounds(self, low: str, high: str, target: int) -> list[str]:
        """Return values that divide the rows into ranges of about `target` rows, in order.

        Args:
            low: the lowest value.
            high: the highest value.
            target: rows of a range.
        """
        bounds = [low, high]
        largest = [(-self.estimated(low, high), 0, low, high)]
        while largest and len(bounds) < MOST_RANGES:
            size, _, start, end = heapq.heappop(largest)
            if -size <= target:
                break
            middle = self._inside(start, end)
            if middle is not None:
                bounds.insert(bounds.index(end), middle)
                for number, (a, b) in enumerate(((start, middle), (middle, end))):
                    heapq.heappush(largest, (-self.estimated(a, b), 2 * len(bounds) + number, a, b))
        return bounds[1:-1]

    def _inside(self, low: str, high: str) -> str | None:
        """Return a value between two, near the middle; None for none."""
        end = high
        for _ in range(HALVINGS):
            middle = halfway(low, end, self.column)
            if middle is None:
                break
            if (found := self._next(low, middle, high)) is not None:
                return found
            end = middle
        return self._next(low, low, high)

    def _next(self, low: str, middle: str, high: str) -> str | None:
        """Return the first value after `low` and before `high` that is not before `middle`."""
        after = f"{self._name} > {self._literal(low)}"
        query = f"{self._select(self._read(), middle, high)} AND {after} ORDER BY {self._name} LIMIT 1"
        found = rows(self.connection, query)
        return found[0][0] if found else None

    def _select(self, what: str, low: str | None = None, high: str | None = None) -> str:
        return f"SELECT {what} FROM {self.table} WHERE {' AND '.join(self._conditions(low, high))}"  # noqa: S608  names are quoted

    def _conditions(self, low: str | None, high: str | None) -> Iterator[str]:
        yield self.condition
        if low is not None:
            yield f"{self._name} >= {self._literal(low)}"
        if high is not None:
            yield f"{self._name} < {self._literal(high)}"

    def _read(self, function: str = "") -> str:
        """Return the expression of the text of a value, bytes in hexadecimal digits."""
        return f"HEX({function}({self._name}))" if self.column.kind == BYTES else f"{function}({self._name})"

    def _literal(self, text: str) -> str:
        return literal(self.connection, self.column, text)

    @property
    def _name(self) -> str:
        return "`" + self.column.name.replace("`", "``") + "`"


def halfway(low: str, high: str, column: Column) -> str | None:
    """Return the text of a value between those of two texts, None for none.

    >>> halfway("10", "21", Column("id", INT, False, "int"))
    '15'
    >>> halfway("Adam", "Eve", Column("name", TEXT, False, "varchar(9)"))[0]
    'C'
    """
    try:
        if column.kind == INT:
            middle: Any = (int(low) + int(high)) // 2
            return str(middle) if int(low) < middle < int(high) else None
        if column.kind == NUMERIC:
            return str((Decimal(low) + Decimal(high)) / 2)
        if column.kind in TIMES:
            return _between_times(low, high, column)
        if column.kind == BYTES:
            return _between_bytes(low, high)
    except (ValueError, InvalidOperation, OverflowError):
        return None
    return _between_texts(low, high) if column.kind == TEXT else None


def _between_times(low: str, high: str, column: Column) -> str | None:
    first, last = datetime.fromisoformat(low), datetime.fromisoformat(high)
    middle = first + (last - first) / 2
    if column.kind == DATE:
        day: date = middle.date()
        return day.isoformat() if first.date() < day < last.date() else None
    return middle.isoformat(" ") if last - first > timedelta(microseconds=1) else None


def _between_bytes(low: str, high: str) -> str | None:
    """Return bytes between two, as hexadecimal digits, by the first that matter."""
    width = 2 * _DIGITS + max(len(low), len(high))
    start, end = (int(each.ljust(width, "0"), 16) for each in (low, high))
    middle = (start + end) // 2
    if not start < middle < end:
        return None
    found = f"{middle:0{width}X}".rstrip("0")
    return found + "0" * (len(found) % 2)


def _between_texts(low: str, high: str) -> str | None:
    """Return a text between two, taking them as numbers with characters as digits."""
    start, end = _number(low), _number(high)
    middle = (start + end) // 2
    if not start < middle < end:
        return None
    digits = list[str]()
    for _ in range(_DIGITS):
        middle, digit = divmod(middle, _COUNT)
        digits.append(chr(_FIRST + digit))
    return "".join(reversed(digits)).rstrip()


def _number(text: str) -> int:
    value = 0
    for at in range(_DIGITS):
        code = ord(text[at]) - _FIRST if at < len(text) else 0
        value = value * _COUNT + min(max(code, 0), _COUNT - 1)
    return value
