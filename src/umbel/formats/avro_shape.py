"""The shape of encoded Avro records: where they end, and which ones expand without bound.

fastavro follows nested records on the stack of C, and makes any number of values that take no bytes, such as nulls of an array: a
record of a few bytes could end the process. Schemas with which that is possible are known; their records are walked before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

DEEPEST = 200
"""Levels of nested values in a record; more than 254 cannot be written as JSON."""
TOO_DEEP = f"its values are nested deeper than {DEEPEST} levels"
MOST_EMPTY = 100_000
"""Values of a record that take no bytes."""

_MOST_IN_ITEM = 100
_UNBOUNDED = 1 << 62
_WIDTHS = {"boolean": 1, "float": 4, "double": 8}
_INTEGERS = frozenset({"int", "long", "enum"})
_RECORDS = frozenset({"record", "error"})


class AvroShape:
    """The shape of the records of a schema.

    Args:
        schema: as parsed by fastavro.
        named: its named types.
    """

    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        self.schema, self.named = schema, named
        self._measured = dict[str, tuple[bool, int]]()

    @cached_property
    def can_expand(self) -> bool:
        """True if few bytes may be a record of any depth or size.

        Such a record is walked before it is decoded.
        """
        is_empty, most = self._measure(self.schema, 0)
        return is_empty or most > MOST_EMPTY

    def walk(self, data: bytes, start: int) -> tuple[int, bool]:
        """Return the end of the record at an offset, and whether it is too deep.

        Raises:
            ValueError: it is cut or damaged, or has too many values without bytes.
        """
        walk = _Walk(data, self.named, start)
        return walk.end(self.schema), walk.deepest > DEEPEST

    def _measure(self, schema: Any, depth: int) -> tuple[bool, int]:
        """Return whether a value takes no bytes, and how many such it has."""
        kind = kind_of(schema)
        if depth > DEEPEST:
            return False, _UNBOUNDED
        if kind == "union":
            return False, max((self._measure(each, depth + 1)[1] for each in schema), default=0)
        if kind in ("array", "map"):
            is_empty, most = self._measure(schema["items" if kind == "array" else "values"], depth + 1)
            return False, _UNBOUNDED if most > _MOST_IN_ITEM or (is_empty and kind == "array") else most
        if kind in _RECORDS:
            self._measured[schema["name"]] = (False, _UNBOUNDED)  # where it is met within itself
            found = [self._measure(each["type"], depth + 1) for each in schema["fields"]]
            self._measured[schema["name"]] = all(is_empty for is_empty, _ in found), 1 + sum(most for _, most in found)
            return self._measured[schema["name"]]
        if kind in self.named and kind_of(self.named[kind]) in _RECORDS:
            return self._measured.get(kind) or self._measure(self.named[kind], depth + 1)
        is_empty = kind == "null" or (kind == "fixed" and schema["size"] == 0)
        return is_empty, int(is_empty)


@dataclass(slots=True)
class _Items:
    """The items of an array or a map that are left of a block."""

    schema: Any
    is_map: bool
    left: int = 0


class _Walk:
    def __init__(self, data: bytes, named: Mapping[str, Any], at: int) -> None:
        self._data, self._named, self._at, self._empty = data, named, at, 0
        self.deepest = 0

    def end(self, schema: Any) -> int:
        """Return the end of a value; without recursion."""
        ahead = [(schema, 0)]
        while ahead:
            each, depth = ahead.pop()
            self.deepest = max(self.deepest, depth)
            if isinstance(each, _Items):
                if self._next_item(each):
                    ahead += [(each, depth), (each.schema, depth + 1)]
                continue
            kind = kind_of(each)
            if kind in _RECORDS and each["fields"]:
                ahead.extend((field["type"], depth + 1) for field in reversed(each["fields"]))
            elif kind == "union":
                if (chosen := self._branch(each)) != "null":
                    ahead.append((chosen, depth))
            elif kind in ("array", "map"):
                ahead.append((_Items(each["items" if kind == "array" else "values"], kind == "map"), depth))
            elif kind in self._named and not isinstance(each, dict):
                ahead.append((self._named[kind], depth))
            else:
                self._skip_plain(each, kind)
        return self._at

    def _skip_plain(self, schema: Any, kind: str) -> None:
        if kind in _INTEGERS:
            self._number()
        elif kind in ("string", "bytes"):
            self._skip_text()
        elif size := schema["size"] if kind == "fixed" else _WIDTHS.get(kind, 0):
            self._skip(size)
        else:
            self._empty += 1
            if self._empty > MOST_EMPTY:
                raise ValueError(f"the record has more than {MOST_EMPTY} values that take no bytes")

    def _next_item(self, items: _Items) -> bool:
        if not items.left:
            items.left = self._number()
            if items.left < 0:
                items.left = -items.left
                self._number()  # the size of the block
            if not items.left:
                return False
        items.left -= 1
        if items.is_map:
            self._skip_text()
        return True

    def _branch(self, schema: Any) -> Any:
        chosen = self._number()
        if not 0 <= chosen < len(schema):
            raise ValueError(f"a union of {len(schema)} types has none with number {chosen}")
        return schema[chosen]

    def _skip_text(self) -> None:
        size = self._number()
        if size < 0:
            raise ValueError(f"a text has a length of {size}")
        self._skip(size)

    def _skip(self, size: int) -> None:
        self._at += size
        if self._at > len(self._data):
            raise ValueError("the record is cut")

    def _number(self) -> int:
        value = shift = 0
        while self._at < len(self._data) and shift < 64:
            byte = self._data[self._at]
            value |= (byte & 0x7F) << shift
            self._at, shift = self._at + 1, shift + 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise ValueError("the record is cut, or has a number of more than 64 bits")


def kind_of(schema: Any) -> str:
    """Return the type of a schema, or the name of a named one."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)
