"""Paths of fields in JSON records: `a.b`, `a[0].b`, `$` for the whole record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from umbel.errors import InvalidValue

Part = str | int
MOST_PARTS = 100

_PART = re.compile(r"\.?(?:(?P<name>[^.\[\]\"]+)|\[(?P<index>-?[0-9]{1,18})\]|\[\"(?P<quoted>[^\"]+)\"\])")


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The location of a value in a record.

    Args:
        parts: names of object members and numbers of list elements; none is the whole record.
    """

    parts: tuple[Part, ...]

    @classmethod
    def parse(cls, text: str) -> FieldPath:
        """Return the path written as a text.

        >>> FieldPath.parse('a[0].b').parts
        ('a', 0, 'b')
        >>> FieldPath.parse('$').parts
        ()

        Raises:
            InvalidValue: the text is not a path.
        """
        if text == "$":
            return cls(())
        found = tuple(islice(_parts(text.removeprefix("$.")), MOST_PARTS + 1))
        if len(found) > MOST_PARTS:
            raise InvalidValue(f"the path '{text:.40}…' has more than {MOST_PARTS} parts")
        return cls(found)

    def __str__(self) -> str:
        texts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.parts)
        return "".join(texts).removeprefix(".") or "$"

    @property
    def is_of_names(self) -> bool:
        """True if no part is the number of a list element."""
        return all(isinstance(part, str) for part in self.parts)

    def get(self, record: Any) -> Any:
        """Return the value at the path, None where the path leads nowhere.

        >>> FieldPath.parse('a[1]').get({"a": [1, 2]})
        2
        """
        for part in self.parts:
            if isinstance(part, str):
                if type(record) is not dict:
                    return None
                record = record.get(part)
            elif type(record) is list and -len(record) <= part < len(record):
                record = record[part]
            else:
                return None
        return record

    def put(self, record: dict[str, Any], value: Any) -> None:
        """Set the value at a path of names, making the objects on the way.

        Raises:
            TypeError: another value than an object or null is on the way.
        """
        *outer, last = map(str, self.parts)
        for name in outer:
            inner = record.get(name)
            if inner is not None and type(inner) is not dict:
                raise TypeError(f"expected an object in '{name}', found {type(inner).__name__}")
            # a copy: the objects may belong to the input, which later documents read
            record[name] = record = dict(inner or {})
        record[last] = value


def _parts(text: str) -> Iterator[Part]:
    position = 0
    while position < len(text):
        found = _PART.match(text, position)
        if found is None or ((position == 0) == (found.group().startswith(".")) and not found.group().startswith("[")):
            raise InvalidValue(f"'{text:.60}' is no path", hint="write a.b, a[0].b, or $ for the whole record")
        position = found.end()
        name = found["name"] or found["quoted"]
        yield int(found["index"]) if name is None else name
    if not position:
        raise InvalidValue("a path is empty", hint="write a.b, a[0].b, or $ for the whole record")
