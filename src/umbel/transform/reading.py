"""Reading of the leaves of a plan: only they are decoded, strictly by type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Annotated, Any

import msgspec
import polars as pl

from umbel.formats.chunks import MAX_ROW
from umbel.transform.leaves import RecordLeaf
from umbel.transform.native import ColumnKind
from umbel.transform.paths import Part
from umbel.transform.record_lines import MOST_DIGITS, RecordLines
from umbel.transform.values import parse

_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TYPES: dict[ColumnKind, Any] = {
    ColumnKind.TEXT: str | None,
    ColumnKind.INT: _INT64 | None,
    ColumnKind.FLOAT: int | float | None,
    ColumnKind.BOOL: bool | None,
    ColumnKind.NULL: None,
}
_PYTHON: dict[ColumnKind, type] = {
    ColumnKind.TEXT: str,
    ColumnKind.INT: int,
    ColumnKind.FLOAT: float,
    ColumnKind.BOOL: bool,
    ColumnKind.NULL: type(None),
}
_ODD = re.compile(r'[\x00-\x1f"\\\ud800-\udfff]')
"""Characters that names of members in JSON have escaped, if at all."""
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (MOST_DIGITS + 1))
"""Digits that, unread, are a number that Python does not read."""
Getter = Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class LeafValues:
    """The leaves of a batch.

    Args:
        columns: by name; typed, or lists of Python objects.
        records: the whole records, if they are read.
        misfits: the numbers of the records that do not fit; their values are null.
    """

    columns: Mapping[str, pl.Series | list[Any]]
    records: list[Any]
    misfits: set[int]


@dataclass
class _Node:
    """The leaves at and below a path."""

    children: dict[Part, _Node] = field(default_factory=dict)
    leaves: list[tuple[str, RecordLeaf]] = field(default_factory=list)
    attribute: str = ""

    @property
    def is_loose(self) -> bool:
        """True if it is decoded as a Python object, in which leaves are looked up."""
        typed = {each.kind for _, each in self.leaves if not each.is_object}
        return (
            None in typed
            or len(typed) > 1
            or not all(map(_is_attribute, self.children))
            or bool(typed and (self.children or len(self.leaves) > len(typed)))
        )


def _is_attribute(part: Part) -> bool:
    """Return True if a projection can have the member of this name."""
    return isinstance(part, str) and _ODD.search(part) is None


class LeafReader:
    """A reader of the leaves of a plan.

    Args:
        leaves: the columns, by leaf.
        whole: whether the whole records are read, too.
    """

    def __init__(self, leaves: Mapping[RecordLeaf, str], *, whole: bool) -> None:
        self._leaves, self._whole = leaves, whole
        root = _Node()
        for leaf, name in leaves.items():
            node = root
            for part in leaf.path.parts:
                node = node.children.setdefault(part, _Node())
            node.leaves.append((name, leaf))
        self._getters: list[tuple[str, RecordLeaf, bool, Getter]] = []
        if whole or root.leaves or root.is_loose:
            decoder: Any = msgspec.json.Decoder(dict[str, Any])
            self._decode: Callable[[bytes], Any] = parse
            self._empty: Any = {}
            self._getters = [(name, leaf, True, _looked_up(leaf)) for leaf, name in leaves.items()]
        else:
            kind = self._struct(root, ())
            decoder = msgspec.json.Decoder(kind)
            self._decode, self._empty = decoder.decode, kind()
        self._decode_lines: Callable[[bytes | bytearray | memoryview], list[Any]] = decoder.decode_lines

    def read(self, batch: RecordLines) -> LeafValues:
        """Return the leaves of some lines."""
        found = [self._at_once(each) or self._columns(*self._decoded(each.cut)) for each in batch.pieces]
        return found[0] if len(found) == 1 else _joined(found, [len(each) for each in batch.pieces])

    def _at_once(self, piece: RecordLines) -> LeafValues | None:
        """Return the leaves of some lines, None where one does not fit.

        The lines are not cut apart, which takes longer than to decode them.
        """
        count, data = piece.objects, piece.data
        if not count or len(data) > MAX_ROW or not piece.is_utf8 or piece.may_have_long_numbers:
            return None
        try:
            records = self._decode_lines(data)
        except (ValueError, RecursionError):
            return None
        return self._columns(records, set()) if len(records) == count else None

    def _columns(self, records: list[Any], misfits: set[int]) -> LeafValues:
        columns = {}
        for name, leaf, is_loose, get in self._getters:
            columns[name] = _column(name, leaf, get(records), misfits, is_loose=is_loose)
        return LeafValues(columns, records if self._whole else [], misfits)

    def _decoded(self, lines: Sequence[bytes]) -> tuple[list[Any], set[int]]:
        decode, records, misfits = self._decode, [], set[int]()
        for number, line in enumerate(lines):
            try:
                if len(line) > MOST_DIGITS and (len(line) > MAX_ROW or _LONG_NUMBER.search(line)):
                    raise ValueError
                line.isascii() or line.decode()
                records.append(decode(line))
            except (ValueError, RecursionError):
                records.append(self._empty)
                misfits.add(number)
        return records, misfits

    def _struct(self, node: _Node, path: tuple[str, ...]) -> Any:
        """Return a type that decodes a node's leaves, and add their getters."""
        fields = []
        for number, (part, child) in enumerate(node.children.items()):
            child.attribute = f"f{number}"
            inner = (*path, child.attribute)
            kind = self._child(child, inner)
            fields.append((child.attribute, kind, msgspec.field(name=str(part), default=None)))
        return msgspec.defstruct("Projection", fields, gc=False, frozen=True)

    def _child(self, child: _Node, path: tuple[str, ...]) -> Any:
        if child.is_loose:
            self._add_loose(child, path, 0)
            return Any
        for name, leaf in child.leaves:
            self._getters.append(
                (name, leaf, leaf.kind is ColumnKind.FLOAT, _attribute(path, is_object=leaf.is_object))
            )
        typed = [leaf.kind for _, leaf in child.leaves if not leaf.is_object]
        return _TYPES[typed[0]] if typed and typed[0] is not None else self._struct(child, path) | None

    def _add_loose(self, node: _Node, path: tuple[str, ...], depth: int) -> None:
        """Add getters that look leaves up in the Python object at a path.

        Args:
            node: whose leaves, and those below it, are added.
            path: the attributes that lead to the object.
            depth: how many of a leaf's last parts are below the object.
        """
        get = _attribute(path, is_object=False)
        for name, leaf in node.leaves:
            inner = type(leaf.path)(leaf.path.parts[len(leaf.path.parts) - depth :])
            looked_up = _looked_up(RecordLeaf(inner, leaf.kind, leaf.is_object))
            self._getters.append((name, leaf, True, _composed(get, looked_up)))
        for child in node.children.values():
            self._add_loose(child, path, depth + 1)


def _joined(found: Sequence[LeafValues], counts: Sequence[int]) -> LeafValues:
    """Return the leaves of pieces of a batch in one."""
    columns: dict[str, pl.Series | list[Any]] = {}
    for name, first in found[0].columns.items():
        parts: list[Any] = [each.columns[name] for each in found]
        columns[name] = pl.concat(parts) if isinstance(first, pl.Series) else list(chain.from_iterable(parts))
    misfits = {
        begin + row for begin, each in zip(accumulate(counts, initial=0), found, strict=False) for row in each.misfits
    }
    return LeafValues(columns, list(chain.from_iterable(each.records for each in found)), misfits)


def _attribute(path: Sequence[str], *, is_object: bool) -> Getter:
    """Return a getter of the attributes at a path, None below None."""
    *outer, last = path
    text = "each"
    source = "records"
    for name in outer:
        source = f"[None if each is None else each.{name} for each in {source}]"
    found = f"None if {text} is None else {text}.{last}" if outer else f"{text}.{last}"
    test = f"({found}) is not None" if is_object else found
    getter: Getter = eval(f"lambda records: [{test} for each in {source}]")  # noqa: S307  of our own names
    if is_object or not outer:
        return getter
    direct: Getter = eval(f"lambda records: [each.{'.'.join(path)} for each in records]")  # noqa: S307
    return _first_direct(direct, getter)


def _first_direct(direct: Getter, getter: Getter) -> Getter:
    """Return a getter that tries a faster one first.

    It fails where an object is missing; from then on it is not tried any more.
    """
    has_all = True

    def get(records: Sequence[Any]) -> list[Any]:
        nonlocal has_all
        if has_all:
            try:
                return direct(records)
            except AttributeError:
                has_all = False
        return getter(records)

    return get


def _composed(first: Getter, second: Getter) -> Getter:
    return lambda records: second(first(records))


def _looked_up(leaf: RecordLeaf) -> Getter:
    get = leaf.path.get
    if leaf.is_object:
        return lambda records: [type(get(each)) is dict for each in records]
    if not leaf.path.parts:
        return list
    return lambda records: [get(each) for each in records]


def _column(
    name: str, leaf: RecordLeaf, values: list[Any], misfits: set[int], *, is_loose: bool
) -> pl.Series | list[Any]:
    if leaf.is_object:
        return pl.Series(name, values, dtype=pl.Boolean)
    if leaf.kind is None:
        return values
    if is_loose:
        _set_apart(values, leaf.kind, misfits)
    return pl.Series(name, values, dtype=leaf.kind.polars)


def _set_apart(values: list[Any], kind: ColumnKind, misfits: set[int]) -> None:
    """Replace values of other types by null."""
    expected = {_PYTHON[kind], type(None)}
    is_wide = kind is ColumnKind.INT and any(type(each) is int and not -(2**63) <= each < 2**63 for each in values)
    is_broken = kind is ColumnKind.TEXT and not _is_text(values)
    is_odd = kind is ColumnKind.FLOAT and any(type(each) is float and not abs(each) < float("inf") for each in values)
    if set(map(type, values)) <= expected and not (is_wide or is_broken or is_odd):
        return
    for number, value in enumerate(values):
        if not _fits(value, kind):
            values[number] = None
            misfits.add(number)


def _fits(value: Any, kind: ColumnKind) -> bool:
    found: Any = value
    if value is None or type(value) is not _PYTHON[kind]:
        return value is None
    if kind is ColumnKind.INT:
        return bool(-(2**63) <= found < 2**63)
    if kind is ColumnKind.FLOAT:
        return bool(abs(found) < float("inf"))
    return kind is not ColumnKind.TEXT or _is_text([value])


def _is_text(values: list[Any]) -> bool:
    try:
        "".join(each for each in values if type(each) is str).encode()
    except UnicodeEncodeError:
        return False
    return True
