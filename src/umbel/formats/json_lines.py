"""Parse rows from JSON lines: vectorised by Polars if exact, else one by one.

Both ways accept the same rows with the same values, or the result for a row would depend on its neighbours. Polars reads
numbers and truth values strictly, but coerces any value of a text column to text; `_Fast.guard` finds bytes where that
could happen. It takes the first value of a repeated key instead of the last; lines that may have one are read one by one.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

import orjson
import polars as pl

from umbel.formats.chunks import COMPRESSED, MAX_ROW
from umbel.formats.garbage import uncollected
from umbel.formats.json_keys import ESCAPED_KEY, examine
from umbel.types.dtype import DType, nulls
from umbel.types.dtypes import Dict, List, Record
from umbel.types.json_values import NUL, revive, with_nan
from umbel.types.long_numbers import LONG, with_decimals, with_long_numbers
from umbel.types.raw import Raw, from_records, rejects
from umbel.types.restrictions import Wrapper

GROUP = 512
"""Lines per group read one by one when one of them is malformed. Smaller groups cost more calls than they save."""
FIRST_BYTES = 1 << 16
"""How much text is searched for the first value of a column."""

SHORT = 8
"""Groups that are read at once from which on this is worth a frame of their own."""

MOST_VALUES = 1 << 22
"""Values of a frame, absent ones too. Objects whose members are dense have fewer in a chunk."""

BIG = "[0-9]{19}"
"""Matches numbers that may be integers beyond 64 bits."""
NAN = re.escape(NUL.decode())
"""Matches what may begin `UNTYPED_NAN`."""
AT_ONCE = 100
"""Lines from which on they are searched at once."""
_ESCAPES = rf"\\u[dD][89abAB]|\\u0000|{ESCAPED_KEY}"
"""Matches escapes that Polars does not read, that may begin `UNTYPED_NAN`, and that hide the name of a key."""


@dataclass(frozen=True, slots=True)
class _Fast:
    """A Polars schema for exact, vectorised reading of some columns.

    Args:
        schema: the schema passed to Polars.
        casts: columns to cast back to text inside lists and structs.
        texts: the text columns.
        guard: matches bytes for which Polars might differ from reading one by one, where these have other values than texts.
        digits: matches numbers of decimals that may have more digits than a float; empty if no decimal is read as one.
    """

    schema: Mapping[str, pl.DataType]
    casts: Mapping[str, pl.DataType]
    texts: Collection[str]
    guard: str
    digits: str = ""

    def read(self, data: bytes) -> pl.DataFrame | None:
        """Return the rows of some lines, None if they must be read one by one."""
        if _has_long_line(data) or data.startswith(COMPRESSED):
            return None
        try:
            if b"\\" in data and _contains(data, _ESCAPES):
                return None
            frame = pl.read_ndjson(io.BytesIO(data), schema=self.schema)
            keys = examine(data, frame, self.texts)
            if not keys.are_distinct or (not keys.have_texts and _contains(data, self.guard)):
                return None
            if self.digits and _contains(data, self.digits):
                return None
        except pl.exceptions.PolarsError:
            return None
        return frame.with_columns(frame[name].cast(dtype) for name, dtype in self.casts.items())


def _has_long_line(data: bytes) -> bool:
    """Return True if a line may be longer than `MAX_ROW`."""
    at = 0
    while len(data) - at > MAX_ROW:
        end = data.rfind(b"\n", at, at + MAX_ROW)
        if end < at:
            return True
        at = end + 1
    return False


def _contains(data: bytes, pattern: str) -> bool:
    return bool(pl.Series([data], dtype=pl.Binary).cast(pl.String).str.contains(pattern).item())


class JsonLines:
    """A parser of lines of JSON objects.

    Args:
        requested: the columns to read, and their types.
        exact: whether only the requested columns are read; else all columns are.
        longest: the most bytes of a line that is read by itself.
    """

    def __init__(self, requested: Mapping[str, DType], *, exact: bool, longest: int = MAX_ROW) -> None:
        self._requested, self._exact, self._longest = requested, exact, longest
        self._columns = {name: dtype.polars() for name, dtype in requested.items()} if exact else {}
        has_dictionaries = any(map(_has_dictionary, requested.values()))  # in JSON their names are those of members
        self._fast = _fast(self._columns) if self._columns and not has_dictionaries else None
        self._decimals = with_decimals(requested)
        self._unusual = "|".join((BIG, NAN, *([LONG.pattern.decode()] if self._decimals else [])))

    def read(self, data: bytes) -> Iterator[Raw]:
        """Yield the rows of some lines in order, blank lines left out."""
        if not self._fast:
            yield from self.portions(*self._parsed(lines_of(data)))
            return
        frame = self.at_once(data)
        if frame is not None:
            yield Raw(frame, rejects({}))
        else:
            yield from self._by_groups(lines_of(data))

    def texts(self, texts: Sequence[bytes]) -> Iterator[Raw]:
        """Yield one row for each text, in order.

        A text may have several lines; a blank one is a rejected row.
        """
        frame = self._exactly(texts)
        if frame is not None:
            yield Raw(frame, rejects({}))
        elif self._fast:
            yield from self._by_groups(texts)
        else:
            yield from self.portions(*self._parsed(texts))

    def _exactly(self, texts: Sequence[bytes]) -> pl.DataFrame | None:
        """Return the rows of texts read at once, None if that could be wrong."""
        data = b"\n".join(texts)
        if data.count(b"\n") != len(texts) - 1:
            return None
        frame = self.at_once(data)
        return frame if frame is not None and frame.height == len(texts) else None

    def _by_groups(self, lines: Sequence[bytes]) -> Iterator[Raw]:
        """Yield the rows of lines of which some are read one by one."""
        frames = [self._exactly(lines[start : start + GROUP]) for start in range(0, len(lines), GROUP)]
        for begin, end in _runs([None if frame is None else frame.schema for frame in frames]):
            found = [frame for frame in frames[begin:end] if frame is not None]
            if len(found) == end - begin:
                yield Raw(pl.concat(found), rejects({}))
            else:
                yield from self.portions(*self._parsed(lines[begin * GROUP : end * GROUP]))

    def at_once(self, data: bytes) -> pl.DataFrame | None:
        """Return the rows of some lines, None if they must be read one by one."""
        if self._fast is None:
            return None
        numeric = self._with_numbers(data)
        frame = None if numeric is None else numeric.read(data)
        frame = self._fast.read(data) if frame is None else frame
        return frame if frame is None or not self._decimals else revive(frame, self._decimals)

    def _with_numbers(self, data: bytes) -> _Fast | None:
        """Return a schema that reads instants as whole numbers, and decimals as floats.

        None if the first values that are not null are no such numbers.

        Numbers are read and converted in half of the time that their texts take.
        """
        begin = data[:FIRST_BYTES]
        numbers = {
            name: pl.Float64() if dtype == pl.Decimal else pl.Int64()
            for name, dtype in self._columns.items()
            if isinstance(dtype, pl.Datetime | pl.Decimal)
            and (first := re.search(rf'"{re.escape(name)}"\s*:\s*([^\sn])'.encode(), begin))
            and first[1] in b"-0123456789"
        }
        return _fast({**self._columns, **numbers}, self._decimals.keys() & numbers.keys()) if numbers else None

    def whole(self, texts: Sequence[bytes]) -> Raw:
        """Return one row for each text, all of them in one frame."""
        return self.values(*self._parsed(texts))

    def portions(self, rows: Sequence[Any], errors: Mapping[int, str]) -> Iterator[Raw]:
        """Yield JSON values as rows in order, in portions if their members have many names.

        A frame has a value of each row for each name: rows whose names differ would take memory by the square of their number.
        """
        for begin, end in [(0, len(rows))] if self._selects else _portions(rows, 0, len(rows)):
            yield self.values(
                rows[begin:end], {row - begin: error for row, error in errors.items() if begin <= row < end}
            )

    def revived(self, value: Any, text: bytes) -> Any:
        """Return a row, or several, with numbers that parsers do not read.

        The value is a row or a list of them; it is changed in place.
        """
        return with_nan(with_long_numbers(value, text, self._decimals), text)

    def _parsed(self, lines: Sequence[bytes]) -> tuple[list[Any], dict[int, str]]:
        """Return the values of lines, `{}` for a malformed one, and the reasons of these."""
        with uncollected():
            try:
                return self._plain_values(lines), {}
            except (ValueError, RecursionError):
                pass  # one of them is malformed: find out which
            rows, errors = list[Any](), dict[int, str]()
            for number, line in enumerate(lines):
                try:
                    rows.append(self._checked_value(line))
                except (ValueError, RecursionError) as error:
                    rows.append({})
                    errors[number] = str(error)
        return rows, errors

    def _plain_values(self, lines: Sequence[bytes]) -> list[Any]:
        if max(map(len, lines), default=0) > self._longest:
            raise ValueError("one needs a closer look")
        values = list(map(orjson.loads, lines))
        for number in _matching(lines, self._unusual):
            values[number] = self._checked_value(lines[number])
        return values

    def _checked_value(self, line: bytes) -> Any:
        if len(line) > self._longest:
            raise ValueError(f"a row of {len(line)} bytes is longer than {self._longest}")
        try:
            return self.revived(parse_value(line), line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"broken JSON: {error}") from error

    @property
    def _selects(self) -> bool:
        return self._exact and bool(self._requested)

    def values(self, rows: Sequence[Any], errors: Mapping[int, str]) -> Raw:
        """Return JSON values as rows; `rows` has `{}` for each row in `errors`."""
        with uncollected():
            raw = from_records(rows, names=self._requested if self._selects else None)
            absent = [name for name in self._requested if name not in raw.frame.columns]
            frame = raw.frame.with_columns(nulls(len(rows), pl.Null()).alias(name) for name in absent)
            frame = revive(frame, self._requested)
        found = pl.concat([rejects(errors), raw.rejects]).sort("row")
        chosen = frame.select(list(self._requested)) if self._selects else frame
        return Raw(chosen, found, objects=None if self._requested else rows, is_sparse=True)


def _runs(schemas: Sequence[pl.Schema | None]) -> Iterator[tuple[int, int]]:
    """Yield ranges of groups of lines that become one frame each.

    Those that are read at once have one schema. Short ranges of them are read with the others beside them, one by one:
    what is done for each frame takes longer than to read its lines again.

    Args:
        schemas: of the frame of each group; None for one that is read one by one.
    """
    alike = [(schema, len(list(run))) for schema, run in groupby(schemas)]
    are_slow = [schema is None or (count < SHORT and len(alike) > 1) for schema, count in alike]
    begin = end = 0
    was_slow = False
    for is_slow, (_, count) in zip(are_slow, alike, strict=True):
        if begin < end and not (is_slow and was_slow):
            yield begin, end
            begin = end
        end, was_slow = end + count, is_slow
    if begin < end:
        yield begin, end


def parse_value(line: bytes) -> Any:
    """Return the value of a JSON text; integers of any size are exact.

    Raises:
        ValueError: the text is not valid JSON.
    """
    value = orjson.loads(line)
    return json.loads(line) if _compiled(BIG).search(line) else value  # orjson reads integers beyond 64 bits as floats


def _matching(lines: Sequence[bytes], pattern: str) -> Sequence[int]:
    """Return the numbers of the lines of UTF-8 in which a pattern is found."""
    if len(lines) < AT_ONCE:
        search = _compiled(pattern).search
        return [number for number, line in enumerate(lines) if search(line)]
    found: Sequence[int] = pl.Series(lines, dtype=pl.Binary).cast(pl.String).str.contains(pattern).arg_true().to_list()
    return found


@cache
def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode())


def _portions(rows: Sequence[Any], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows, halved until each has at most `MOST_VALUES`."""
    names = set[str]().union(*(row for row in rows[begin:end] if isinstance(row, Mapping)))
    if (end - begin) * len(names) <= MOST_VALUES or end - begin == 1:
        yield begin, end
        return
    middle = (begin + end) // 2
    yield from _portions(rows, begin, middle)
    yield from _portions(rows, middle, end)


def lines_of(data: bytes) -> list[bytes]:
    """Return the non-blank lines."""
    return [line for line in data.split(b"\n") if not line.isspace() and line]


def _fast(columns: Mapping[str, pl.DataType], decimals: Collection[str] = ()) -> _Fast | None:
    schema = {name: _TOP.get(type(dtype)) or _strict(dtype) for name, dtype in columns.items()}
    known = {name: dtype for name, dtype in schema.items() if dtype is not None}
    if len(known) < len(columns):
        return None
    texts = [name for name, dtype in known.items() if dtype == pl.String]
    lenient = rf"{_named(texts)}(?:[\[{{tf]|-?\d+[.eE]|-?\d{{19}})"
    casts = {name: _texts(dtype) for name, dtype in known.items() if _texts(dtype) != dtype}
    digits = rf"{_named(decimals)}-?[0-9.]{{16}}" if decimals else ""
    return _Fast(known, casts, frozenset(texts), lenient, digits)


def _named(names: Iterable[str]) -> str:
    """Return a pattern for the names of some members, up to their values."""
    return rf'"(?:{"|".join(map(re.escape, names))})"\s*:\s*'


_SAME = (pl.Int64, pl.Float64, pl.Boolean)
_TOP: Mapping[type, pl.DataType] = dict.fromkeys((pl.String, pl.Datetime, pl.Date, pl.Decimal), pl.String())


def _strict(dtype: pl.DataType) -> pl.DataType | None:
    """Return a Polars type for reading values of a type without coercion, or None."""
    if dtype in _SAME:
        return dtype
    if dtype == pl.String or isinstance(dtype, pl.Datetime | pl.Date):
        return (
            pl.Categorical()
        )  # a text column would coerce anything, and inside lists and structs the guard cannot detect it
    if isinstance(dtype, pl.List | pl.Array):
        inner = _strict(_inner(dtype.inner))
        return None if inner is None else pl.List(inner)
    if isinstance(dtype, pl.Struct):
        fields = {field.name: _strict(_inner(field.dtype)) for field in dtype.fields}
        known = {name: kind for name, kind in fields.items() if kind is not None}
        return pl.Struct(known) if len(known) == len(fields) else None
    return None


def _has_dictionary(dtype: DType) -> bool:
    """Return whether a type is Dict, or has it inside."""
    if isinstance(dtype, Record):
        return any(_has_dictionary(each) for _, each in dtype.members())
    return isinstance(dtype, Dict) or (isinstance(dtype, List | Wrapper) and _has_dictionary(dtype.of))


def _texts(dtype: pl.DataType) -> pl.DataType:
    if isinstance(dtype, pl.Categorical):
        return pl.String()
    if isinstance(dtype, pl.List):
        return pl.List(_texts(_inner(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _texts(_inner(field.dtype)) for field in dtype.fields})
    return dtype


def _inner(dtype: Any) -> pl.DataType:
    kind: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return kind
