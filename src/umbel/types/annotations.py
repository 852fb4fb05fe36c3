"""Types from Python annotations, and back."""

from __future__ import annotations

import builtins
import decimal
import types
import typing
import warnings
from collections.abc import Mapping
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
"""Modules whose classes nobody can make structs."""

_HINTS: dict[Any, str] = {
    decimal.Decimal: "say how many digits follow the point: umbel.dtypes.Decimal[2]",
    list: "say what is in the list: List[int]",
    typing.List: "say what is in the list: List[int]",  # noqa: UP006
    dict: "say what the values are: Dict[str, int]",
    typing.Dict: "say what the values are: Dict[str, int]",  # noqa: UP006
}


class Decimal:
    """Annotate fixed-point numbers of 28 digits: `Decimal[2]` has two after the point."""

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
    """Annotate values that may be missing: `Option[int]` is the older spelling of `Optional[int]`."""

    def __class_getitem__(cls, of: Any) -> Any:
        _older("Option[T]", "Optional[T]")
        return typing.Optional[of]  # noqa: UP045


def _older(old: str, new: str) -> None:
    warnings.warn(f"{old} is an older spelling: use {new}", DeprecationWarning, stacklevel=3)


def from_annotation(
    annotation: Any,
    *,
    owner: str = "",
    field: str = "",
    where: str | None = None,
    names: Mapping[str, Any] | None = None,
) -> dtypes.DType:
    """Return the type an annotation stands for.

    Args:
        annotation: what stands after the colon; text is looked up in `names`.
        owner: the object the field belongs to, for the error.
        field: the name of the field, for the error.
        where: `file:line` of the definition, for the error.
        names: what the names in a text annotation mean; builtins by default.

    Raises:
        InvalidType: no type of values, or one with parameters that do not go together.
        InvalidValue: a dictionary with keys that are not str.
    """
    try:
        return _read(annotation, names or {})
    except (InvalidType, InvalidValue) as error:
        place = ".".join(part for part in (owner, field) if part)
        message = f"{place}: {error.message}" if place else error.message
        raise type(error)(message, where=error.where or where, hint=error.hint) from None


def to_annotation(dtype: dtypes.DType) -> Any:
    """Return the Python annotation that makes a type."""
    return dtype.annotation()


def _read(annotation: Any, names: Mapping[str, Any]) -> dtypes.DType:
    annotation = _resolve(annotation, names)
    if isinstance(annotation, dtypes.DType):
        return annotation
    if isinstance(annotation, Restriction):
        return annotation.dtype()
    if isinstance(annotation, typing.Hashable) and annotation in PLAIN:
        return PLAIN[annotation]
    if "__umbel_struct__" in getattr(annotation, "__dict__", {}):
        return typing.cast(dtypes.DType, annotation.__umbel_struct__)
    reader = _GENERIC.get(typing.get_origin(annotation))
    if reader is None or not typing.get_args(annotation):
        _refuse(annotation)
    return typing.cast(dtypes.DType, reader(typing.get_args(annotation), names))


def _resolve(annotation: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation
    try:
        # The user's own source text, evaluated where the user wrote it, as typing.get_type_hints does, twice
        # when there are quotes in it.
        return _resolve(eval(annotation, {**vars(builtins), **names}), names)  # noqa: S307
    except UmbelError:
        raise
    except NameError as error:
        raise InvalidType(
            f"'{annotation}' is a forward reference: {error}", hint="define what it refers to before it is used"
        ) from error
    except Exception as error:
        raise InvalidType(f"'{annotation}' cannot be read as a type: {error}", hint=_FIELD_TYPES) from error


def _optional(args: tuple[Any, ...], names: Mapping[str, Any]) -> dtypes.DType:
    members = [arg for arg in args if arg is not type(None) and arg is not None]
    if len(members) != 1:
        spelled = " and ".join(_spell(_resolve(member, names)) for member in members)
        raise InvalidType(f"a value is of one type, found {spelled}", hint="the only union is Optional[T]")
    of = _read(members[0], names)
    return of if of.is_optional else dtypes.Optional(of)


def _list(args: tuple[Any, ...], names: Mapping[str, Any]) -> dtypes.DType:
    return dtypes.List(_read(args[0], names))


def _dict(args: tuple[Any, ...], names: Mapping[str, Any]) -> dtypes.DType:
    key, value = args
    if _resolve(key, names) is not str:
        raise InvalidValue(f"the keys of a Dict must be str, found {_spell(key)}", hint="Dict[str, ...]")
    return dtypes.Dict(_read(value, names))


_GENERIC: dict[Any, Any] = {typing.Union: _optional, types.UnionType: _optional, list: _list, dict: _dict}


def _refuse(annotation: Any) -> NoReturn:
    known = {**_HINTS, Decimal: _HINTS[decimal.Decimal], Embedding: "say how many floats it has: Embedding[128]"}
    hint = known.get(annotation) if isinstance(annotation, typing.Hashable) else None
    if isinstance(annotation, type) and hint is None and annotation.__module__.partition(".")[0] not in _NO_STRUCTS:
        hint = f"decorate {annotation.__name__} with @struct to use it as a type"
    raise InvalidType(f"{_spell(annotation)} is not a type a field can have", hint=hint or _FIELD_TYPES)


def _spell(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
