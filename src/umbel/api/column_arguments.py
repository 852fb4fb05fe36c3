"""Names and types of columns, as passed to operators by the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umbel.errors import InvalidType, InvalidValue
from umbel.types.annotations import from_annotation
from umbel.types.dtypes import DType


def names_of(
    positional: Sequence[Any], keyword: Any, subject: str, word: str = "columns", *, is_distinct: bool = False
) -> tuple[str, ...]:
    """Return the column names of an operator call, positional or by keyword.

    Raises:
        InvalidValue: both ways are used at once, an item is not a name, or a name is repeated though `is_distinct`.
    """
    if positional and keyword is not None:
        raise InvalidValue(
            f"{subject}: give columns either as positional arguments or as {word}=, not both",
            hint=f'("a", "b"), or ({word}=["a", "b"])',
        )
    provided: Any = positional if keyword is None else (keyword,)
    if len(provided) == 1 and not isinstance(provided[0], str) and isinstance(provided[0], Sequence):
        provided = provided[0]
    names = tuple(str(name) for name in provided)
    wrong = [name for name in provided if not isinstance(name, str) and not hasattr(name, "dataset_name")]
    if wrong:
        raise InvalidValue(
            f"{subject}: column names must be strings, found {wrong[0]!r}", hint="names of columns as text"
        )
    repeated = [name for name in names if names.count(name) > 1] if is_distinct else []
    if repeated:
        raise InvalidValue(f"{subject}: column '{repeated[0]}' is given twice", hint="give each column once")
    return names


def text_of(name: Any, subject: str, role: str) -> str:
    """Return a column name passed as text or as a field of a dataset.

    Raises:
        InvalidType: it is something else, or empty.
    """
    if not (isinstance(name, str) or hasattr(name, "dataset_name")) or not str(name):
        raise InvalidType(f"{subject}: {role} must be the name of a column, found {name!r:.80}", hint='"uid"')
    return str(name)


def type_of(annotation: Any, subject: str, column: str) -> DType:
    """Return the type that an annotation gives a column.

    Raises:
        InvalidType: not a type of values.
        InvalidValue: a dictionary with keys that are not str.
    """
    try:
        return from_annotation(annotation)
    except (InvalidType, InvalidValue) as error:
        raise error.restated(f"{subject}: column '{column}': {error.message}", hint=error.hint) from None


_PANDAS = {"Int64Dtype": int, "Float64Dtype": float, "StringDtype": str, "BooleanDtype": bool}


def without_pandas(annotation: Any) -> Any:
    """Return the type for a pandas dtype, anything else unchanged."""
    kind = annotation if isinstance(annotation, type) else type(annotation)
    return _PANDAS.get(kind.__name__, annotation) if kind.__module__.startswith("pandas.") else annotation
