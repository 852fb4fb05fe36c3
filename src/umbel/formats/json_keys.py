"""Detection of JSON objects that have a key twice.

Polars takes the first value of a repeated key, orjson and most parsers the last. `examine` finds the keys of lines by their
bytes, and compares their number with that of the values read. Keys with escapes must have been excluded. Where all keys of
usual lines are known, it is enough to count quotes and colons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

ESCAPED_KEY = r'\\.(?:[^"\\]|\\.)*"\s*:'
"""Matches a key with an escaped character, since its bytes are those of another key."""

_QUOTE, _COLON, _NEWLINE, _BLANK = b'":\n '
_TEXT = np.isin(np.arange(256), list(b'"n'))
_BLANKS = np.isin(np.arange(256), list(b" \t\r"))
_WORD = 8
_BLOCK = 256 << 10
"""Bytes examined at once: few enough for the cache of a core."""
_OTHERS = 3
"""Keys of no column that are told apart at most: to find the keys of all columns takes as long as to tell four."""

Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class LineKeys:
    """Properties of the keys of some lines; False means that they are not certain.

    Args:
        are_distinct: no object has a key of a column or of a field twice.
        have_texts: the value of each text column is a text or null.
    """

    are_distinct: bool
    have_texts: bool


def examine(data: bytes, frame: pl.DataFrame, texts: Collection[str]) -> LineKeys:
    """Examine the keys of some lines.

    Args:
        data: lines of JSON objects.
        frame: their rows.
        texts: the names of the text columns.
    """
    if _are_all_counted(data, frame):
        return LineKeys(True, True)
    names = sorted({name for column in frame for name in _names(column.name, column.dtype)})
    keys, count, have_texts = [f'"{name}"'.encode() for name in names], 0, True
    for block in map(_Block.of, _blocks(data)):
        for name, key in zip(names, keys, strict=True):
            ends = block.find(key)
            count += ends.size
            have_texts &= name not in texts or block.have_texts(ends)
    if count == sum(map(_values, frame)):  # each value has a key of its own, which leaves none for a second value
        return LineKeys(True, have_texts)
    are_distinct = all(block.is_once_per_line(key) for block in map(_Block.of, _blocks(data)) for key in keys)
    return LineKeys(are_distinct, have_texts)


def _are_all_counted(data: bytes, frame: pl.DataFrame) -> bool:
    """Return True if there are as many keys and quotes as the values have.

    Each value then has the only key of its name, and nothing but the values of text columns is in quotes. Keys of no column are
    those of the first line, and others with the same marks. Lists may have quotes without a key, so that there must be none.
    """
    if b"\\" in data or b"[" in data or any(dtype.is_nested() for dtype in frame.dtypes):
        return False
    others = _other_keys(data, frame.columns)
    if others is None or len(others) > _OTHERS:
        return False
    marks, keys, quotes, foreign = [_Marks.of(name, frame.columns) for name in others], 0, 0, np.zeros(2, np.int64)
    for block in _blocks(data):
        chars = np.frombuffer(block, np.uint8)
        are_quotes, are_blank = chars == _QUOTE, chars <= _BLANK
        are_keys = are_quotes[:-1] & (chars[1:] == _COLON)
        if (are_quotes[:-1] & are_blank[1:]).any() or (others and (are_keys[:-1] & are_blank[2:]).any()):
            return False  # keys that are written in other ways
        keys, quotes = keys + int(np.count_nonzero(are_keys)), quotes + int(np.count_nonzero(are_quotes))
        foreign += _counted(marks, chars, are_keys, are_quotes)
    counts = [(len(column) - column.null_count(), column.dtype == pl.String) for column in frame]
    texts = sum(count for count, is_text in counts if is_text) + int(foreign[1])
    known = sum(count for count, _ in counts) + int(foreign[0])
    return keys == known and quotes == 2 * (keys + texts)


@dataclass(frozen=True, slots=True)
class _Marks:
    """Bytes by which a key of no column differs from those of all columns.

    Args:
        values: of these bytes, by their distance from the quote that ends the key.
    """

    values: Mapping[int, int]

    @staticmethod
    def of(name: bytes, columns: Collection[str]) -> _Marks:
        """Choose few bytes: each time the one that tells the key from most columns.

        Columns with a quote in their names are left out, since lines without escapes have no such key.
        """
        key, found = b'"' + name, dict[int, int]()
        left = [b'"' + column.encode() for column in columns if '"' not in column]
        reach = min(len(key), max(map(len, left), default=0))  # keys may have megabytes
        while left:
            alike = {each: [other for other in left if _is_alike(key, other, each)] for each in range(1, reach + 1)}
            best = min(alike, key=lambda each: len(alike[each]))
            left, found[best] = alike[best], key[-best]
        return _Marks(found)

    def find(self, chars: npt.NDArray[np.uint8], are_keys: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which keys have these bytes, by the positions of their last quotes."""
        found = are_keys.copy()
        for distance, byte in self.values.items():
            found[:distance] = False
            found[distance:] &= chars[: found.size - distance] == byte
        return found


def _is_alike(key: bytes, other: bytes, distance: int) -> bool:
    """Return True if two keys do not differ at a distance from their ends."""
    return distance > len(other) or key[-distance] == other[-distance]


def _counted(
    marks: Collection[_Marks],
    chars: npt.NDArray[np.uint8],
    are_keys: npt.NDArray[np.bool_],
    are_quotes: npt.NDArray[np.bool_],
) -> tuple[int, int]:
    """Count the keys with any of some marks, and those whose values are texts."""
    found = np.zeros_like(are_keys)
    for each in marks:
        found |= each.find(chars, are_keys)
    return int(np.count_nonzero(found)), int(np.count_nonzero(found[:-1] & are_quotes[2:]))


def _other_keys(data: bytes, columns: Collection[str]) -> list[bytes] | None:
    """Return the keys of the first line that no column has.

    None if the line is not an object.
    """
    try:
        line = orjson.loads(data[: data.find(b"\n") + 1 or len(data)])
    except ValueError:  # such as a blank one
        return None
    return [key.encode() for key in line if key not in columns] if isinstance(line, dict) else None


@dataclass(frozen=True, slots=True)
class _Block:
    """Some lines.

    Args:
        chars: their bytes, behind a margin of one word.
        words: the eight bytes from each position on, as a number.
        ends: the positions behind each key.
        tails: the last words of the keys, up to the end.
    """

    chars: npt.NDArray[np.uint8]
    words: npt.NDArray[np.int64]
    ends: Positions
    tails: npt.NDArray[np.int64]

    @staticmethod
    def of(data: bytes) -> _Block:
        """Find the keys of some lines."""
        chars = np.frombuffer(bytes(_WORD) + data, np.uint8)
        ends = np.flatnonzero(chars == _COLON)
        before = chars[ends - 1]
        while (blank := _BLANKS[before]).any():
            ends = ends - blank
            before = chars[ends - 1]
        ends = ends[before == _QUOTE]
        words = np.ndarray((chars.size - _WORD + 1,), "<i8", chars.data, strides=(1,))
        return _Block(chars, words, ends, words[ends - _WORD])

    def find(self, key: bytes) -> Positions:
        """Return the positions behind a key, which has its quotes."""
        mask, value = _word(key[-_WORD:])
        found: Positions = self.ends[self.tails & mask == value]
        for end in range(_WORD, len(key), _WORD):
            found = found[found >= end + _WORD]
            mask, value = _word(key[-end - _WORD : -end])
            found = found[self.words[found - end - _WORD] & mask == value]
        return found

    def have_texts(self, ends: Positions) -> bool:
        """Return True if the value of each of some keys is a text or null."""
        begins = ends + 1
        while (blank := _BLANKS[self.chars[begins]]).any():
            begins = begins + blank
        return bool(_TEXT[self.chars[begins]].all())

    def is_once_per_line(self, key: bytes) -> bool:
        """Return True if no line has a key twice."""
        lines = np.searchsorted(np.flatnonzero(self.chars == _NEWLINE), self.find(key))
        return bool((np.diff(lines) > 0).all())


def _word(text: bytes) -> tuple[np.int64, np.int64]:
    """Return the mask and the value of a word that ends with some bytes."""
    free = _WORD - len(text)
    return np.int64(-1 << 8 * free), np.int64(int.from_bytes(bytes(free) + text, "little", signed=True))


def _blocks(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + _BLOCK) + 1 or len(data)
        yield data[start:end]
        start = end


def _names(name: str, dtype: Any) -> set[str]:
    """Return the name of a column and those of the fields in it."""
    if isinstance(dtype, pl.List):
        return _names(name, dtype.inner)
    fields = dtype.fields if isinstance(dtype, pl.Struct) else ()
    return {name}.union(*(_names(each.name, each.dtype) for each in fields))


def _values(column: pl.Series) -> int:
    """Return the number of values with a key: of a column and its fields."""
    found = len(column) - column.null_count()
    while isinstance(column.dtype, pl.List):
        column = column.drop_nulls().list.explode(empty_as_null=False)
    if isinstance(column.dtype, pl.Struct):
        found += sum(map(_values, column.drop_nulls().struct.unnest()))
    return found
