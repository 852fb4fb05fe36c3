"""Leaves of a plan: the values of records that it reads, with their types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from umbel.transform.native import JSON_KINDS, ColumnKind, Native, NotNative
from umbel.transform.paths import FieldPath

_KINDS: dict[type, ColumnKind] = {
    str: ColumnKind.TEXT,
    int: ColumnKind.INT,
    float: ColumnKind.FLOAT,
    bool: ColumnKind.BOOL,
}


@dataclass(frozen=True, slots=True)
class RecordLeaf:
    """A value that a plan reads from each record.

    Args:
        path: its location.
        kind: the type of its column; None for Python objects of any type.
        is_object: whether the column says that there is an object, instead of its value.
    """

    path: FieldPath
    kind: ColumnKind | None
    is_object: bool = False


def identity(expr: pl.Expr) -> bytes:
    """Return what is equal for equal expressions only.

    Their texts do not have all: that of `strptime` is without its format.
    """
    return expr.meta.serialize()


@dataclass
class Leaves:
    """The leaves of a plan, collected while it is made.

    Args:
        kinds: returns the type of the values at a path, None if they have none in common.
    """

    kinds: Callable[[FieldPath], ColumnKind | None]
    found: dict[RecordLeaf, str] = field(default_factory=dict)
    constants: dict[str, Callable[[], Any]] = field(default_factory=dict)
    computed: dict[bytes, tuple[str, pl.Expr]] = field(default_factory=dict)

    def column(self, path: FieldPath) -> Native:
        """Return the values at a path as a column.

        Raises:
            NotNative: they have several types, or are lists or objects.
        """
        kind = self.kinds(path)
        if kind is None:
            raise NotNative(f"'{path}' is a list, an object, or of several types")
        return Native(pl.col(self.name(RecordLeaf(path, kind))), kind, share=self.share)

    def is_object(self, path: FieldPath) -> tuple[pl.Expr, ...]:
        """Return the condition that there is an object at a path."""
        return (pl.col(self.name(RecordLeaf(path, None, is_object=True))),) if path.parts else ()

    def constant(self, make: Callable[[], Any], kind: ColumnKind) -> Native:
        """Return a value that is computed once per batch."""
        name = f"constant{len(self.constants)}"
        self.constants[name] = make
        return Native(pl.col(name), kind, share=self.share)

    def share(self, expr: pl.Expr) -> pl.Expr:
        """Return a column of the plan with the values of an expression."""
        if expr.meta.is_column() or expr.meta.is_literal():
            return expr
        name, _ = self.computed.setdefault(identity(expr), (f"computed{len(self.computed)}", expr))
        return pl.col(name)

    def name(self, leaf: RecordLeaf) -> str:
        """Return the column of a leaf, adding it."""
        return self.found.setdefault(leaf, f"leaf{len(self.found)}")


def seen_kinds(sample: Sequence[Mapping[str, Any]]) -> Callable[[FieldPath], ColumnKind | None]:
    """Return a lookup of the most frequent type of values at a path."""

    def kind(path: FieldPath) -> ColumnKind | None:
        counts = Counter(type(path.get(record)) for record in sample)
        del counts[type(None)]
        if not counts:
            return ColumnKind.NULL
        return _KINDS.get(counts.most_common(1)[0][0])

    return kind


def assumed_kinds(kind: ColumnKind) -> Callable[[FieldPath], ColumnKind | None]:
    """Return a lookup of the same type for all paths; for `umbel transform explain`."""
    assert kind in JSON_KINDS
    return lambda _: kind
