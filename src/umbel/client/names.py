"""Names of features, datasets and branches, passed as objects or text."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from umbel.definitions.names import check_secret_name as secret_name
from umbel.errors import InvalidType, InvalidValue, UnknownName, encodable
from umbel.query.resolve import name_of

LONGEST_BRANCH = 200
_NO_PART = {"", ".", ".."}
"""Names that cannot be a part of the path of a URL."""
_BRANCH = re.compile(r"[A-Za-z0-9_.\-/]+")


def names_of(items: Iterable[Any], what: str) -> list[str]:
    """Return the names of features and featuresets.

    Args:
        items: objects or text.
        what: the argument they are passed as, for messages.
    """
    if isinstance(items, str):
        raise InvalidType(f"{what} must be a list of features, got the text {items!r}", hint="put it in a list")
    if not isinstance(items, Iterable):
        raise InvalidType(f"{what} must be a list of features, got {items!r:.80}", hint="put it in a list")
    return [name_of(item) for item in items]


def dataset_name(dataset: Any) -> str:
    """Return the name of a dataset, passed as an object or as text."""
    if isinstance(dataset, str):
        if not dataset or dataset in _NO_PART or "/" in dataset:  # it could be part of no URL
            raise UnknownName(f"dataset {dataset!r:.80} is not committed", hint="name a dataset")
        return dataset
    if hasattr(dataset, "key_fields"):
        return str(dataset.__name__)
    raise InvalidType(
        f"expected a dataset or its name, got {dataset!r:.80}",
        hint='client.lookup(User, ...) or client.lookup("User", ...)',
    )


def field_names(fields: Sequence[Any] | None) -> list[str] | None:
    """Return the names of a dataset's fields, None for all."""
    if isinstance(fields, str):
        raise InvalidValue(f"fields must be a list of names, got the text {fields!r}", hint="put it in a list")
    return [str(field) for field in fields] if fields else None


def check_branch(name: Any) -> None:
    """Refuse a value that cannot name a branch."""
    if not isinstance(name, str) or not _BRANCH.fullmatch(name):
        raise InvalidValue(
            f"branch name {name!r} must consist of letters, digits and the characters _ . - /",
            hint="a name like 'team/experiment-1'",
        )


def check_new_branch(name: Any) -> None:
    """Refuse a value that cannot name a new branch."""
    check_branch(name)
    if len(name) > LONGEST_BRANCH:
        raise InvalidValue(
            f"branch name '{name:.40}…' has {len(name)} characters, and may have {LONGEST_BRANCH}",
            hint="choose a shorter name",
        )


def check_message(message: Any) -> None:
    """Refuse a commit message that is not text."""
    if not isinstance(message, str):
        raise InvalidType(f"the message of a commit must be text, got {message!r:.80}", hint='commit("add orders", …)')


def check_secret(name: str, value: Any) -> str:
    """Return a secret; refuse one that is not text."""
    check_secret_name(name)
    if not isinstance(value, str):
        raise InvalidType(
            f"secret '{name}' must be text, got {type(value).__name__}", hint="add_secret(name, str(value))"
        )
    if encodable(value) != value:
        raise InvalidValue(
            f"secret '{name}' has an unpaired surrogate, which has no form in UTF-8", hint="mend the text"
        )
    return value


def check_secret_name(name: Any) -> None:
    """Refuse a value that cannot name a secret."""
    if not isinstance(name, str) or name in _NO_PART or "/" in name:
        raise InvalidValue(
            f"a secret's name must be text without '/', and not '.' or '..', got {name!r:.80}", hint='"fraud-api-key"'
        )
    secret_name(name)


def check_share(value: Any, what: str) -> float:
    """Return a share as a number; refuse a value that is none."""
    try:
        share = float(value)
    except (TypeError, ValueError):
        raise InvalidType(f"{what} must be a number from 0 to 1, got {value!r:.80}", hint=f"{what}=0.1") from None
    if math.isnan(share):  # JSON has none
        raise InvalidValue(f"'{what}' must be from 0 to 1, found nan", hint=f"{what}=0.1")
    return share


def check_flag(value: Any, what: str) -> bool:
    """Return a truth value, of Python or NumPy; refuse another value, such as a text."""
    import numpy as np

    if value is None or isinstance(value, bool | np.bool_):
        return bool(value)
    raise InvalidType(f"{what} must be True or False, got {value!r:.80}", hint=f"{what}=True")


def check_count(value: Any, what: str, least: int) -> int:
    """Return a whole number, of Python or NumPy; refuse another value."""
    try:
        found = operator.index(value)
    except TypeError:
        found = least - 1
    if found < least:
        raise InvalidValue(f"{what} must be a whole number from {least}, found {value!r:.80}", hint="10")
    return found


def check_texts(**values: Any) -> None:
    """Refuse arguments that are not text."""
    for what, value in values.items():
        if not isinstance(value, str):
            raise InvalidType(f"{what} must be text, got {value!r:.80}", hint=f'{what}="name"')


def column_names(columns: Any) -> dict[str, str]:
    """Return the columns of features by the features' names; refuse what is no dictionary."""
    if not isinstance(columns, Mapping | None):
        raise InvalidType(
            f"feature_to_column_map must be a dictionary, got {columns!r:.80}", hint='{User.uid: "customer"}'
        )
    return {name_of(feature): column for feature, column in (columns or {}).items()}


_FRAME = 'pd.DataFrame({"uid": [1, 2]})'


def check_frame(rows: Any, what: str) -> None:
    """Refuse rows that are not a frame."""
    import pandas as pd

    if not isinstance(rows, pd.DataFrame):
        found, hint = _found(rows)
        raise InvalidType(f"{what} must be a pandas DataFrame, got {found}", hint=hint)


def check_keys(keys: Any) -> None:
    """Refuse keys that are not a frame."""
    import pandas as pd

    if not isinstance(keys, pd.DataFrame):
        found, hint = _found(keys)
        raise InvalidValue(f"keys must be a pandas DataFrame with one column per key field, got {found}", hint=hint)


def _found(rows: Any) -> tuple[str, str]:
    """Return what was passed in place of a pandas frame, and what to pass.

    Frames of Polars, Spark and Arrow can make one.
    """
    kind, package = type(rows).__name__, type(rows).__module__.partition(".")[0]
    makes = next((name for name in ("to_pandas", "toPandas") if hasattr(rows, name)), None)
    return (f"{package}.{kind}", f"pass what its .{makes}() returns") if makes else (kind, _FRAME)
