"""Annotated classes without `@struct`, treated as structs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from umbel.errors import InvalidType
from umbel.types.annotations import AnnotationScope, read
from umbel.types.class_body import annotations_of, fields_in
from umbel.types.dtypes import DType, Struct
from umbel.types.structs import completed

_STRUCTS: dict[type, Struct] = {}


def struct_of(cls: type, scope: AnnotationScope) -> Struct:
    """Return the type of values with the fields of a class.

    Users receive values as instances of a subclass with the members of structs: a constructor of fields, comparison by
    fields, `as_json`, access by item. The class itself is not changed.

    Raises:
        InvalidType: a field of a type that fields cannot have.
    """
    if cls in scope.inside:
        raise InvalidType(
            f"{cls.__name__} has itself as a field", hint="values have a fixed depth: refer to it by a key"
        )
    found = _STRUCTS.get(cls)
    if found is None:
        annotations, names = annotations_of(cls)
        within = scope.within(cls, {**names, **scope.names})
        fields = {name: _field(cls, name, hint, within) for name, hint in fields_in(annotations).items()}
        found = _STRUCTS[cls] = _made(cls, fields)
    return found


def _field(cls: type, name: str, annotation: Any, scope: AnnotationScope) -> DType:
    try:
        return read(annotation, scope)
    except InvalidType as error:
        raise InvalidType(f"{cls.__name__}.{name}: {error.message}", hint=error.hint) from None


def _made(cls: type, fields: Mapping[str, DType]) -> Struct:
    of = tuple(fields.items())
    if not of:
        raise InvalidType(f"{cls.__name__} has no fields", hint="annotate them: name: type")
    body = {"__init__": _init, "__reduce__": _reduce, "__repr__": _repr, "__module__": cls.__module__}
    made = type(cls.__name__, (cls,), {**body, "__qualname__": cls.__qualname__})
    found = Struct(cls.__name__, of, made)
    completed(made, found)
    return found


def _init(self: Any, *args: Any, **values: Any) -> None:
    names = [name for name, _ in type(self).__umbel_struct__.fields]
    provided = {**dict(zip(names, args, strict=False)), **values}
    if len(args) > len(names) or provided.keys() != set(names):
        raise InvalidType(f"{type(self).__name__} takes {', '.join(names)}", hint="give each of them once")
    for name, value in provided.items():
        object.__setattr__(self, name, value)  # the class may be frozen


def _reduce(self: Any) -> tuple[Any, ...]:
    (cls, *_) = type(self).__bases__
    return _again, (cls, {name: getattr(self, name) for name, _ in type(self).__umbel_struct__.fields})


def _again(cls: type, values: dict[str, Any]) -> Any:
    return struct_of(cls, AnnotationScope({})).make(values)


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, _ in type(self).__umbel_struct__.fields)
    return f"{type(self).__name__}({', '.join(shown)})"
