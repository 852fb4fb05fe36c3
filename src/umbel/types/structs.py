"""`@struct`: values with named fields, declared as classes."""

from __future__ import annotations

import dataclasses
import inspect
import keyword
from collections.abc import Mapping
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from umbel.errors import InvalidType, InvalidValue, UmbelError, UnknownName, did_you_mean, raise_all
from umbel.types.annotations import from_annotation
from umbel.types.class_body import annotations_of
from umbel.types.constructing import of_fields, of_lists
from umbel.types.dtype import is_missing
from umbel.types.dtypes import Struct

MARK = "__umbel_struct__"
META = "__umbel_meta__"
APPLIED = "__umbel_applied__"

T = TypeVar("T")


@dataclass_transform()
def struct(cls: type[T]) -> type[T]:
    """Make a class a struct: a dataclass for values of fields.

    Args:
        cls: a class of annotated fields without defaults, and nothing else.

    Raises:
        InvalidType: a method, a forward reference, or a field of a type that fields cannot have.
        InvalidValue: a field with a default, or `@meta` on the struct.

    >>> @struct
    ... class Money:
    ...     amount: int
    ...     currency: str
    >>> Money(5, "EUR").as_json()
    {'amount': 5, 'currency': 'EUR'}
    """
    annotations, names = annotations_of(cls)
    where = _location(cls)
    subject = f"struct {cls.__name__}"
    _check_body(cls, annotations, where)
    fields = tuple(
        (name, from_annotation(hint, subject=subject, field=name, where=where, names=names, plain_classes=False))
        for name, hint in annotations.items()
    )
    cls.__annotations__ = annotations  # inherited ones are fields as well, from any base class
    return completed(dataclasses.dataclass(eq=False)(cls), Struct(cls.__name__, fields, cls))


def completed(cls: type[T], dtype: Struct) -> type[T]:
    """Return a class with the common methods of structs added."""
    for name, member in (("__eq__", _equals), ("__hash__", _hash), ("as_json", _as_json), ("__getitem__", _item)):
        setattr(cls, name, member)
    setattr(cls, "expr", classmethod(of_fields))  # noqa: B010
    setattr(cls, "zip", classmethod(of_lists))  # noqa: B010
    setattr(cls, MARK, dtype)
    return cls


def is_struct(kind: Any) -> bool:
    """Return True if a class was made by `@struct`."""
    return isinstance(kind, type) and MARK in vars(kind)


def struct_type(kind: Any) -> Struct:
    """Return the type of a struct class.

    Raises:
        InvalidType: the class is not a struct.
    """
    found = vars(kind).get(MARK) if isinstance(kind, type) else None
    if not isinstance(found, Struct):
        raise InvalidType(f"{getattr(kind, '__name__', kind)} is not a struct", hint="decorate it with @struct")
    return found


def _location(cls: type) -> str | None:
    try:
        return f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):
        return None


def _check_body(cls: type, annotations: Mapping[str, Any], where: str | None) -> None:
    kind: type[UmbelError] = InvalidValue
    errors = []
    if META in vars(cls):
        errors.append("metadata cannot be set on a struct: remove @meta")
    if APPLIED in vars(cls):
        errors.append("@source and @sink are for datasets: remove them")
    errors += [
        f"'{name}' cannot name a field: its constructor needs a Python identifier"
        for name in annotations
        if not name.isidentifier() or keyword.iskeyword(name)
    ]
    for name, value in vars(cls).items():
        if name in annotations:
            errors.append(f"field '{name}' has the default value {value!r}: fields of structs have none")
    headline = f"struct {cls.__name__} is not well defined:"
    methods = [name for name, value in vars(cls).items() if _is_method(name, value)]
    if methods:
        kind = InvalidType
        errors += [f"'{name}' is a method: a struct has fields only" for name in methods]
    if not annotations:
        errors.append("it has no fields")
    hint = "a struct is a class of annotated fields and nothing else; functions go beside it"
    raise_all(errors, kind, headline, where=where, hint=hint)


def _is_method(name: str, value: Any) -> bool:
    # Decorated with @expectations, a method is a record of the API's that has the function.
    return any(inspect.isroutine(each) for each in (value, getattr(value, "func", None))) or isinstance(
        value, (property, classmethod, staticmethod)
    )


def _values(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name, _ in getattr(type(value), MARK).fields}


def _equals(self: Any, other: object) -> bool:
    return all(hasattr(other, name) and _same(value, getattr(other, name)) for name, value in _values(self).items())


def _same(left: Any, right: Any) -> bool:
    if is_missing(left) or is_missing(right):
        return is_missing(left) and is_missing(right)
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return list(left) == list(right)
    return bool(left == right)


def _hash(self: Any) -> int:
    return hash(tuple(None if is_missing(value) else value for value in _values(self).values()))


def _item(self: Any, name: str) -> Any:
    """Return a field by name, like a mapping."""
    names = [each for each, _ in getattr(type(self), MARK).fields]
    if name not in names:
        kind = type(self).__name__
        hint = f"its fields: {', '.join(names)}"
        raise UnknownName(f"struct {kind} has no field {name!r}{did_you_mean(str(name), names)}", hint=hint)
    return getattr(self, name)


def _as_json(self: Any) -> dict[str, Any]:
    """Return the fields as a dict, structs inside as dicts too; missing values are None."""
    return {name: _plain(value) for name, value in _values(self).items()}


def _plain(value: Any) -> Any:
    if is_missing(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.as_json() if hasattr(value, "as_json") else value
