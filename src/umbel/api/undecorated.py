"""Dataset decorators written below `@dataset`.

The undecorated class records them, `@dataset` applies them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from umbel.errors import InvalidType, InvalidValue
from umbel.types.structs import is_struct

if TYPE_CHECKING:
    from umbel.api.dataset import Dataset

ATTRIBUTE = "__umbel_applied__"
Decorator = Callable[[Any], "Dataset"]


def note(cls: type, name: str, decorator: Decorator) -> type:
    """Record a decorator for `@dataset` to apply to the resulting dataset.

    Args:
        cls: the class as written.
        name: of the decorator, for messages.
        decorator: takes and returns a dataset.

    Raises:
        InvalidType: the class is a struct, or cannot be changed.
    """
    if is_struct(cls):
        raise InvalidType(
            f"@{name} needs a dataset, found the struct '{cls.__name__}'", hint=f"put @{name} on a class with @dataset"
        )
    try:
        setattr(cls, ATTRIBUTE, (*noted(cls), (name, decorator)))
    except TypeError as error:  # a built-in class
        raise InvalidType(
            f"@{name} needs a dataset, found {cls!r}", hint=f"put @{name} on a class with @dataset"
        ) from error
    return cls


def noted(cls: type) -> tuple[tuple[str, Decorator], ...]:
    """Return the decorators recorded on a class itself, in application order.

    The lowest is first.
    """
    found: tuple[tuple[str, Decorator], ...] = vars(cls).get(ATTRIBUTE, ())
    return found


def apply_noted(cls: type, made: Dataset) -> Dataset:
    """Apply the decorators recorded on a class to its dataset.

    Raises:
        InvalidValue: a base class of the dataset's class has decorators, which would have no effect.
    """
    for parent in cls.__mro__[1:]:
        for name, _ in noted(parent):
            raise InvalidValue(
                f"dataset '{cls.__name__}' inherits from class '{parent.__name__}', which has @{name} but is no dataset",
                hint=f"put @{name} on '{cls.__name__}': decorators are not inherited",
            )
    for _, decorator in noted(cls):
        made = decorator(made)
    return made


def refuse_noted(cls: type, kind: str) -> None:
    """Refuse dataset decorators on a class that becomes another kind of object.

    Raises:
        InvalidType: the class has such decorators.
    """
    for name, _ in noted(cls):
        raise InvalidType(
            f"@{name} needs a dataset, found the {kind} '{cls.__name__}'", hint=f"put @{name} on a class with @dataset"
        )
