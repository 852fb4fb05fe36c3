"""Casts to the types of a destination's columns that lose nothing, or say so."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from umbel.connectors.sinks import RowsRefused
from umbel.errors import InvalidValue


def fitted(column: pa.ChunkedArray, to: pa.DataType, subject: str) -> pa.ChunkedArray:
    """Return a column in another type.

    Numbers may be rounded to floats of less precision, as a column of floats is made for; nothing else may change. Structs, maps
    and lists of lists are returned as they are: a cast would leave out the fields that only one of the types has.

    Args:
        column: the values.
        to: the type.
        subject: the column of the destination, for messages.

    Raises:
        InvalidValue: no value of the column has that type.
        RowsRefused: a value is not one of the type.
    """
    if column.type == to or _has_parts(column.type) or _has_parts(to):
        return column
    hint = "let the destination's column have a type that holds all values of the field"
    try:
        made = column.cast(to)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise InvalidValue(f"{subject} is of type {to}, which has no {column.type}", hint=hint) from None
    except pa.ArrowInvalid as error:
        if not len(column):
            raise InvalidValue(f"{subject} is of type {to}, for a field of {column.type}: {error}", hint=hint) from None
        raise RowsRefused(f"{subject} of type {to}: {error}", hint=hint) from None
    if _is_changed(column, made):
        raise RowsRefused(f"{subject} of type {to} does not hold a value of type {column.type}", hint=hint)
    return made


def _is_changed(column: pa.ChunkedArray, made: pa.ChunkedArray) -> bool:
    """Return whether a cast has changed a value.

    Casts to and from text, and of the elements of lists, have raised then.
    """
    if any(pa.types.is_nested(each) or _is_text(each) for each in (column.type, made.type)):
        return False
    if pa.types.is_floating(column.type) and pa.types.is_floating(made.type):
        return bool(pc.any(pc.and_(pc.is_finite(column), pc.invert(pc.is_finite(made)))).as_py())
    return bool(pc.any(pc.not_equal(made.cast(column.type), column)).as_py())


def _has_parts(dtype: pa.DataType) -> bool:
    """Return whether values have more parts than those of a list of plain values."""
    return bool(pa.types.is_nested(_item(dtype)))


def _item(dtype: pa.DataType) -> pa.DataType:
    is_list = any(test(dtype) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))
    return dtype.value_type if is_list else dtype


def _is_text(dtype: pa.DataType) -> bool:
    return any(
        test(dtype)
        for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )
