"""Lists, dictionaries and vectors."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from umbel.errors import InvalidType
from umbel.types.dtype import Checked, DType, Refused, describe, present, scatter_rows, shown
from umbel.types.nesting import Lists, apart, elements, flattened, objects_apart
from umbel.types.numeric import Float
from umbel.types.text import Str, has_surrogates, unpaired


@dataclass(frozen=True, slots=True)
class List(DType):
    """Lists of values of one type."""

    of: DType

    def polars(self) -> pl.DataType:
        return pl.List(self.of.polars())

    def annotation(self) -> Any:
        return typing.List[self.of.annotation()]  # type: ignore[misc]  # noqa: UP006

    @property
    def is_hashable(self) -> bool:
        return self.of.is_hashable

    def convert_column(self, column: pl.Series) -> Checked:
        if not isinstance(column.dtype, (pl.List, pl.Array)):
            return self.convert_objects(column.to_list())
        lists = apart(column)
        checked = self.of.ingest(lists.inner)
        if column.dtype == self.polars() and not checked.errors:
            return Checked(column)
        return Checked(lists.together(checked.values), lists.lift(checked.errors))

    def convert_objects(self, values: Sequence[Any]) -> Checked:
        lists, errors = objects_apart(values, self.refuse)
        checked = self.of.ingest(lists.inner)
        return Checked(lists.together(checked.values), errors).blame(lists.lift(checked.errors))

    @property
    def is_plain_python(self) -> bool:
        return self.of.is_plain_python and not self.of.is_optional

    def present(self, value: Any) -> Any:
        return value if self.is_plain_python else [shown(self.of, element) for element in value]

    def __str__(self) -> str:
        return f"List[{self.of}]"


@dataclass(frozen=True, slots=True)
class Dict(DType):
    """Mappings with text keys, stored as lists of (key, value) sorted by key.

    Equal mappings therefore have equal storage forms.
    """

    of: DType

    def polars(self) -> pl.DataType:
        return pl.List(pl.Struct({"key": pl.String(), "value": self.of.polars()}))

    def annotation(self) -> Any:
        return typing.Dict[str, self.of.annotation()]  # type: ignore[misc]  # noqa: UP006

    @property
    def is_hashable(self) -> bool:
        return self.of.is_hashable

    def convert_column(self, column: pl.Series) -> Checked:
        kind = column.dtype
        if isinstance(kind, pl.Map):
            return self.convert_column(column.map.entries())
        if isinstance(kind, pl.List) and isinstance(kind.inner, pl.Struct) and len(kind.inner.fields) == 2:
            lists = apart(column)
            entries = pl.Series(lists.inner).struct.unnest()
            checked = self._entries(lists, entries.to_series(0), entries.to_series(1))
            unchanged = not checked.errors and kind == self.polars() and checked.values.equals(column)
            return Checked(column) if unchanged else checked
        if isinstance(kind, pl.Struct):
            return self._convert_fields(column)
        return self.convert_objects(column.to_list())

    def _convert_fields(self, column: pl.Series) -> Checked:
        # A reader without a map type makes a struct of all keys in the data: a null field is an absent key.
        rows = [None if row is None else {k: v for k, v in row.items() if v is not None} for row in column.to_list()]
        return self.convert_objects(rows)

    def convert_objects(self, values: Sequence[Any]) -> Checked:
        if {*map(type, values)} <= {dict, type(None)}:
            keys, lists = list(chain.from_iterable(filter(None, values))), flattened(values, _contents)
            if {*map(type, keys)} <= {str} and not any(map(has_surrogates, keys)):
                return self._entries(lists, pl.Series(keys, dtype=pl.String), lists.inner)
        return self._convert_any(values)

    def _convert_any(self, values: Sequence[Any]) -> Checked:
        rows: list[Any] = [None] * len(values)
        errors: dict[int, str] = {}
        for row, value in present(values, nan_is_null=True):
            try:
                rows[row] = self._pairs(value)
            except Refused as refused:
                errors[row] = refused.message
        lists, _ = objects_apart(rows, self.refuse)
        keys, inner = [key for key, _ in lists.inner], [value for _, value in lists.inner]
        return self._entries(lists, pl.Series(keys, dtype=pl.String), inner).blame(errors)

    def _pairs(self, value: Any) -> list[tuple[str, Any]]:
        if isinstance(value, Mapping):
            items = list(value.items())
        else:
            items = [self._pair(item, value) for item in elements(value, self.refuse)]
        for key, _ in items:
            if not isinstance(key, str):
                raise Refused(f"expected {self}, got the key {describe(key)}")
            if has_surrogates(key):
                raise Refused(f"expected {self}, got a key that is {unpaired(key)}")
        return items

    def _pair(self, item: Any, value: Any) -> tuple[Any, Any]:
        if isinstance(item, Mapping) and item.keys() == {"key", "value"}:
            return item["key"], item["value"]
        if isinstance(item, Mapping) or len(pair := elements(item, self.refuse)) != 2:
            raise self.refuse(value)
        return pair[0], pair[1]

    def _entries(self, lists: Lists, keys: pl.Series, inner: pl.Series | list[Any]) -> Checked:
        names, checked = Str().ingest(keys), self.of.ingest(inner)
        entries = _in_order(pl.DataFrame({"row": lists.rows(), "key": names.values, "value": checked.values}))
        counts = np.bincount(entries["row"].to_numpy(), minlength=len(lists.lengths))
        dicts = Lists(counts, lists.valid, []).together(entries.select("key", "value").to_struct())
        return Checked(dicts, lists.lift({**checked.errors, **names.errors}, keys))

    @property
    def is_plain_python(self) -> bool:
        return False

    def present(self, value: Any) -> Any:
        return {entry["key"]: shown(self.of, entry["value"]) for entry in value}

    def __str__(self) -> str:
        return f"Dict[str, {self.of}]"


@dataclass(frozen=True, slots=True)
class Embedding(DType):
    """Vectors of exactly `size` floats."""

    size: int

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int):
            raise InvalidType(f"Embedding[{self.size!r}]: the size must be an int", hint="Embedding[128]")
        if self.size < 1:
            raise InvalidType(f"Embedding[{self.size}]: the size must be at least 1", hint="Embedding[128]")

    def polars(self) -> pl.DataType:
        return pl.Array(pl.Float64(), self.size)

    def convert_column(self, column: pl.Series) -> Checked:
        if not isinstance(column.dtype, (pl.List, pl.Array)):
            return self.convert_objects(column.to_list())
        checked = self._vectors(apart(column))
        return Checked(column) if column.dtype == self.polars() and not checked.errors else checked

    def convert_objects(self, values: Sequence[Any]) -> Checked:
        lists, errors = objects_apart(values, self.refuse)
        return self._vectors(lists).blame(errors)

    def _vectors(self, lists: Lists) -> Checked:
        fits = lists.lengths == self.size
        wrong = {
            row: f"expected {self}, got {lists.lengths[row]} elements"
            for row in np.flatnonzero(lists.valid & ~fits).tolist()
        }
        floats = Float().ingest(lists.inner)
        retained = floats.values.filter(pl.Series(np.repeat(fits, lists.lengths)))
        vectors = scatter_rows(retained.reshape((-1, self.size)), np.flatnonzero(fits), len(fits))
        return Checked(vectors, {**lists.lift(floats.errors), **wrong})

    def __str__(self) -> str:
        return f"Embedding[{self.size}]"


def _contents(records: Iterable[Mapping[str, Any]]) -> Iterable[Any]:
    return chain.from_iterable(record.values() for record in records)


def _in_order(entries: pl.DataFrame) -> pl.DataFrame:
    row, key = entries["row"], entries["key"]
    if ((row != row.shift()) | (key > key.shift())).fill_null(True).all():
        return entries
    ordered = entries.sort("row", "key", maintain_order=True)
    return ordered.unique(["row", "key"], keep="last", maintain_order=True)
