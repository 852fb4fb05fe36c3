"""Fingerprints: the identity of a definition, stable across processes and machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import Field, fields, is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import singledispatch
from hashlib import blake2b
from typing import Any

from umbel.errors import InvalidType

BYTES = 8


def fingerprint(*parts: Any) -> str:
    """Return 16 hexadecimal characters that identify `parts` by value.

    Raises:
        InvalidType: a part is neither plain data, nor a dataclass, nor of a class with `__digest__` or `to_record`.
    """
    return blake2b(canonical(parts).encode(), digest_size=BYTES).hexdigest()


def canonical(value: Any) -> str:
    """Return an unambiguous text of a value: equal values, and only those, have equal texts."""
    digest = getattr(type(value), "__digest__", None)
    if digest is not None:
        return f"#{digest(value)}"
    if hasattr(type(value), "to_record"):
        return f"{type(value).__name__}({canonical(value.to_record())})"
    if is_dataclass(value) and not isinstance(value, type):
        return _record(value)
    return _plain.dispatch(type(value))(value)  # called directly, as definitions may be nested deeply


def _record(value: Any) -> str:
    named = ((f.name, getattr(value, f.name)) for f in fields(value) if f.compare and _identifies(f, value))
    return f"{type(value).__name__}({','.join(f'{name}={canonical(part)}' for name, part in named)})"


def _identifies(each: Field[Any], value: Any) -> bool:
    """Return True if a field is part of the identity.

    `"where set"` keeps the identities from before there was the field.
    """
    identity = each.metadata.get("identity", True)
    return getattr(value, each.name) is not None if identity == "where set" else bool(identity)


def _sequence(values: Iterable[Any]) -> str:
    return ",".join(map(canonical, values))


@singledispatch
def _plain(value: Any) -> str:
    raise InvalidType(f"a value of type '{type(value).__name__}' cannot be part of a definition: {value!r}")


@_plain.register(str)
@_plain.register(bytes)
@_plain.register(bool)
@_plain.register(int)
@_plain.register(float)
@_plain.register(type(None))
def _scalar(value: Any) -> str:
    return f"{type(value).__name__}:{value!r}"


@_plain.register(datetime)
@_plain.register(date)
@_plain.register(timedelta)
@_plain.register(Decimal)
def _exact(value: Any) -> str:
    return f"{type(value).__name__}:{value}"


@_plain.register(Enum)
def _member(value: Enum) -> str:
    return f"{type(value).__name__}.{value.name}"


@_plain.register(type)
def _class(value: type) -> str:
    return f"class:{value.__qualname__}"


@_plain.register(tuple)
@_plain.register(list)
def _ordered(value: Iterable[Any]) -> str:
    return f"[{_sequence(value)}]"


@_plain.register(AbstractSet)
def _unordered(value: AbstractSet[Any]) -> str:
    return f"{{{','.join(sorted(map(canonical, value)))}}}"


@_plain.register(Mapping)
def _mapping(value: Mapping[Any, Any]) -> str:
    pairs = zip(list(map(canonical, value)), list(map(canonical, value.values())), strict=True)
    return f"{{{','.join(map(':'.join, pairs))}}}"
