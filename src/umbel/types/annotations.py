"""Types from Python annotations, and back."""

from __future__ import annotations

import builtins
import decimal
import enum
import inspect
import types
import typing
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NoReturn

from umbel.errors import InvalidType, InvalidValue, UmbelError
from umbel.types import dtypes, windows
from umbel.types.restrictions import Restriction, between, oneof, regex

__all__ = [
    "Decimal",
    "Dict",
    "Embedding",
    "Option",
    "between",
    "from_annotation",
    "oneof",
    "regex",
    "to_annotation",
]

PLAIN: dict[Any, dtypes.DType] = {
    int: dtypes.Int(),
    float: dtypes.Float(),
    bool: dtypes.Bool(),
    str: dtypes.Str(),
    bytes: dtypes.Bytes(),
    datetime: dtypes.Datetime(),
    date: dtypes.Date(),
    windows.Window: dtypes.Window(),
}
_FIELD_TYPES = (
    "use int, float, bool, str, bytes, datetime, date, Decimal[2], Embedding[128], List[T], Dict[str, T], Optional[T], "
    "oneof, between, regex, Window or a class made by @struct"
)
_NO_STRUCTS = ("builtins", "datetime", "numpy", "pandas")
"""Modules with classes that cannot be structs."""

_HINTS: dict[Any, str] = {
    decimal.Decimal: "say how many digits follow the point: umbel.dtypes.Decimal[2]",
    list: "say what is in the list: List[int]",
    typing.List: "say what is in the list: List[int]",  # noqa: UP006
    dict: "say what the values are: Dict[str, int]",
    typing.Dict: "say what the values are: Dict[str, int]",  # noqa: UP006
}
_EMBEDDING = "say how many floats it has: Embedding[128]"


_HEAP_TYPE = 1 << 9


@dataclass(frozen=True, slots=True)
class AnnotationScope:
    """The scope for resolving annotations.

    Args:
        names: resolves the names in a text annotation.
        plain_classes: whether annotated classes without `@struct` are treated as structs.
        inside: the classes whose fields are being read.
    """

    names: Mapping[str, Any]
    plain_classes: bool = True
    inside: tuple[type, ...] = ()

    def within(self, cls: type, names: Mapping[str, Any]) -> AnnotationScope:
        """Return the scope of the fields of a class."""
        return AnnotationScope(names, self.plain_classes, (*self.inside, cls))


class Decimal:
    """Annotate fixed-point numbers of 28 digits: `Decimal[2]` has two decimals."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise InvalidType("Decimal is a type hint, use []", hint="Decimal[2]; for a value: decimal.Decimal('1.50')")

    def __class_getitem__(cls, scale: int) -> dtypes.Decimal:
        return dtypes.Decimal(scale)


class Embedding:
    """Annotate vectors of floats: `Embedding[128]` has 128 of them."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise InvalidType("Embedding is a type hint, use []", hint="Embedding[128]")

    def __class_getitem__(cls, size: int) -> dtypes.Embedding:
        return dtypes.Embedding(size)


class Dict:
    """Annotate mappings with text keys: `Dict[int]` is the older spelling of `Dict[str, int]`."""

    def __class_getitem__(cls, of: Any) -> Any:
        if not isinstance(of, tuple):
            _older("Dict[T]", "Dict[str, T]")
        return typing.Dict[of if isinstance(of, tuple) else (str, of)]  # type: ignore[misc]  # noqa: UP006


class Option:
    """The older spelling of `Optional`: `Option[int]` annotates nullable values."""

    def __class_getitem__(cls, of: Any) -> Any:
        _older("Option[T]", "Optional[T]")
        return typing.Optional[of]  # noqa: UP045


def _older(old: str, new: str) -> None:
    warnings.warn(f"{old} is an older spelling: use {new}", DeprecationWarning, stacklevel=3)


def from_annotation(
    annotation: Any,
    *,
    subject: str = "",
    field: str = "",
    where: str | None = None,
    names: Mapping[str, Any] | None = None,
    plain_classes: bool = True,
) -> dtypes.DType:
    """Return the type of an annotation.

    Args:
        annotation: the annotation; text is evaluated with `names`.
        subject: the object the field belongs to, for the error.
        field: the name of the field, for the error.
        where: `file:line` of the definition, for the error.
        names: resolves the names in a text annotation; builtins by default.
        plain_classes: whether annotated classes without `@struct` are treated as structs.

    Raises:
        InvalidType: not a type of values, or one with inconsistent parameters.
        InvalidValue: a dictionary with keys that are not str.
    """
    try:
        return read(annotation, AnnotationScope(names or {}, plain_classes))
    except (InvalidType, InvalidValue) as error:
        location = ".".join(part for part in (subject, field) if part)
        message = f"{location}: {error.message}" if location else error.message
        raise error.restated(message, where=error.where or where, hint=error.hint) from None


def to_annotation(dtype: dtypes.DType) -> Any:
    """Return the Python annotation of a type."""
    return dtype.annotation()


def read(annotation: Any, scope: AnnotationScope) -> dtypes.DType:
    """Return the type of an annotation, resolved in a scope."""
    annotation = _resolve(annotation, scope)
    if isinstance(annotation, dtypes.DType):
        return annotation
    if isinstance(annotation, Restriction):
        return annotation.dtype()
    if isinstance(annotation, typing.Hashable) and annotation in PLAIN:
        return PLAIN[annotation]
    if "__umbel_struct__" in getattr(annotation, "__dict__", {}):
        return typing.cast(dtypes.DType, annotation.__umbel_struct__)
    if scope.plain_classes and is_plain_class(annotation):
        from umbel.types.plain_classes import struct_of

        return struct_of(annotation, scope)
    reader = _GENERIC.get(typing.get_origin(annotation))
    if reader is None or not typing.get_args(annotation):
        _refuse(annotation)
    return typing.cast(dtypes.DType, reader(typing.get_args(annotation), scope))


def is_plain_class(annotation: Any) -> bool:
    """Return True if an annotation is a user class with annotations usable as fields."""
    if type(annotation) is not type or annotation.__module__.partition(".")[0] in (*_NO_STRUCTS, "umbel"):
        return False
    lineage = annotation.__mro__[:-1]
    made_by_python = all(each.__flags__ & _HEAP_TYPE for each in lineage)  # no exceptions, tuples, dicts
    return made_by_python and any(inspect.get_annotations(each) for each in lineage)


def _resolve(annotation: Any, scope: AnnotationScope) -> Any:
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation
    try:
        # The user's own source text, evaluated where the user wrote it, as typing.get_type_hints does, twice
        # when there are quotes in it.
        return _resolve(eval(annotation, {**vars(builtins), **scope.names}), scope)  # noqa: S307
    except UmbelError:
        raise
    except NameError as error:
        raise InvalidType(
            f"'{annotation}' is a forward reference: {error}", hint="define what it refers to before it is used"
        ) from error
    except Exception as error:  # the user's text may raise anything
        raise InvalidType(f"'{annotation}' cannot be read as a type: {error}", hint=_FIELD_TYPES) from error


def _optional(args: tuple[Any, ...], scope: AnnotationScope) -> dtypes.DType:
    members = [arg for arg in args if arg is not type(None) and arg is not None]
    if len(members) != 1:
        spelled = " and ".join(_spell(_resolve(member, scope)) for member in members)
        raise InvalidType(f"a value is of one type, found {spelled}", hint="the only union is Optional[T]")
    of = read(members[0], scope)
    return of if of.is_optional else dtypes.Optional(of)


def _list(args: tuple[Any, ...], scope: AnnotationScope) -> dtypes.DType:
    return dtypes.List(read(args[0], scope))


def _dict(args: tuple[Any, ...], scope: AnnotationScope) -> dtypes.DType:
    key, value = args
    if _resolve(key, scope) is not str:
        raise InvalidValue(f"the keys of a Dict must be str, found {_spell(key)}", hint="Dict[str, ...]")
    return dtypes.Dict(read(value, scope))


_GENERIC: dict[Any, Any] = {typing.Union: _optional, types.UnionType: _optional, list: _list, dict: _dict}


def _refuse(annotation: Any) -> NoReturn:
    known = {**_HINTS, Decimal: _HINTS[decimal.Decimal], Dict: _HINTS[dict], Embedding: _EMBEDDING}
    hint = known.get(annotation) if isinstance(annotation, typing.Hashable) else None
    if isinstance(annotation, enum.EnumMeta) or typing.get_origin(annotation) is typing.Literal:
        hint = 'name the values: oneof(str, ["a", "b"])'
    elif type(annotation) is type and hint is None and annotation.__module__.partition(".")[0] not in _NO_STRUCTS:
        hint = f"decorate {annotation.__name__} with @struct to use it as a type"
    raise InvalidType(f"{_spell(annotation)} is not a type a field can have", hint=hint or _FIELD_TYPES)


def _spell(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
