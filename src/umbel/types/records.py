"""Structs and window spans: values with named fields."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import polars as pl

from umbel.types import windows
from umbel.types.dtype import Checked, DType, nulls, present, scatter_rows, shown
from umbel.types.instants import STORED, Datetime


@dataclass(frozen=True, slots=True)
class Record(DType):
    """Values with named fields.

    Accepts instances, mappings and structs with all fields that are not Optional.
    """

    @abstractmethod
    def members(self) -> tuple[tuple[str, DType], ...]:
        """Return the fields: name and type."""

    @abstractmethod
    def make(self, values: dict[str, Any]) -> Any:
        """Return the user-facing object from the values of all fields."""

    def polars(self) -> pl.DataType:
        return pl.Struct({name: dtype.polars() for name, dtype in self.members()})

    def convert_column(self, column: pl.Series) -> Checked:
        if not isinstance(column.dtype, pl.Struct):
            return self.convert_objects(column.to_list())
        valid = column.is_not_null()
        known = column if valid.all() else column.filter(valid)
        have = {inner.name for inner in column.dtype.fields}
        fields = {name: known.struct.field(name) for name, _ in self.members() if name in have}
        checked = self._together(fields, valid.to_numpy())
        return Checked(column) if column.dtype == self.polars() and not checked.errors else checked

    def convert_objects(self, values: Sequence[Any]) -> Checked:
        fields = self._of_one_kind([value for value in values if value is not None])
        if fields is not None:
            return self._together(fields, np.fromiter((value is not None for value in values), np.bool_, len(values)))
        valid = np.zeros(len(values), np.bool_)
        rows: list[Any] = []
        errors: dict[int, str] = {}
        names = [name for name, _ in self.members()]
        for row, value in present(values, nan_is_null=True):
            if isinstance(value, Mapping) or all(hasattr(value, name) for name in names):
                valid[row] = True
                rows.append(value)
            else:
                errors[row] = self.refuse(value).message
        fields = {name: [_read(value, name) for value in rows] for name in names}
        return self._together(fields, valid).blame(errors)

    def _of_one_kind(self, rows: Sequence[Any]) -> dict[str, list[Any]] | None:
        """Return the fields of dicts, or of objects of one class; None for others."""
        names, kinds = [name for name, _ in self.members()], set(map(type, rows))
        if kinds == {dict}:
            return {name: [row.get(name) for row in rows] for name in names}
        declared = getattr(kinds.pop(), "__annotations__", {}) if len(kinds) == 1 else {}
        try:
            return (
                {name: list(map(attrgetter(name), rows)) for name in names} if declared.keys() >= set(names) else None
            )
        except AttributeError:
            return None

    def _together(self, fields: Mapping[str, pl.Series | list[Any]], valid: np.ndarray[Any, Any]) -> Checked:
        rows = np.flatnonzero(valid)
        columns: list[pl.Series] = []
        errors: dict[int, str] = {}
        for name, dtype in self.members():
            checked = dtype.ingest(fields[name] if name in fields else nulls(len(rows), pl.Null()))
            columns.append(checked.values.alias(name))
            for row, reason in checked.errors.items():
                errors.setdefault(int(rows[row]), f".{name}: {reason}")
        return Checked(scatter_rows(pl.DataFrame(columns).to_struct(), rows, len(valid)), errors)

    @property
    def is_plain_python(self) -> bool:
        return False

    def present(self, value: Any) -> Any:
        return self.make({name: shown(dtype, value[name]) for name, dtype in self.members()})


def _read(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


@dataclass(frozen=True, slots=True)
class Struct(Record):
    """Named fields.

    `cls` is the user's struct class; values are converted back to it for users.
    """

    name: str
    fields: tuple[tuple[str, DType], ...]
    cls: Any = field(default=None, compare=False, repr=False)

    def members(self) -> tuple[tuple[str, DType], ...]:
        return self.fields

    def annotation(self) -> Any:
        return self.cls or _stand_in(self)

    def make(self, values: dict[str, Any]) -> Any:
        return self.annotation()(**values)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Window(Record):
    """Time spans [begin, end)."""

    def members(self) -> tuple[tuple[str, DType], ...]:
        return (("begin", Datetime()), ("end", Datetime()))

    def annotation(self) -> Any:
        return windows.Window

    def make(self, values: dict[str, Any]) -> Any:
        return windows.Window(**values)

    def polars(self) -> pl.DataType:
        return pl.Struct({"begin": STORED, "end": STORED})

    def __str__(self) -> str:
        return "Window"


def structs_in(dtype: DType) -> Iterator[Struct]:
    """Yield the structs in a type, outermost first."""
    if isinstance(dtype, Struct):
        yield dtype
        for _, member in dtype.fields:
            yield from structs_in(member)
    elif isinstance(inner := getattr(dtype, "of", None), DType):
        yield from structs_in(inner)


def with_classes(dtype: DType, classes: Mapping[Struct, Any]) -> DType:
    """Return a type whose structs have the classes of equal structs.

    A struct that already has one of these classes, or that has no equal, retains its own.
    """
    if isinstance(dtype, Struct):
        cls = dtype.cls if dtype.cls in classes.values() else classes.get(dtype, dtype.cls)
        return replace(dtype, fields=tuple((name, with_classes(of, classes)) for name, of in dtype.fields), cls=cls)
    inner = getattr(dtype, "of", None)
    return replace(dtype, of=with_classes(inner, classes)) if isinstance(inner, DType) else dtype  # type: ignore[call-arg]


@cache
def _stand_in(struct: Struct) -> Any:
    """Return a substitute class for a struct without its own class.

    The class is absent when the definition was read from a catalog.
    """
    from umbel.types.structs import completed

    return completed(make_dataclass(struct.name, [(name, dtype.annotation()) for name, dtype in struct.fields]), struct)
