"""`@inputs`, `@outputs` and `@includes`: declared reads, writes and pickled objects.

`@inputs` and `@outputs` declare the inputs and outputs of a pipeline or an extractor; `@includes` lists objects pickled with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from umbel.errors import InvalidType

INPUTS = "__umbel_inputs__"
OUTPUTS = "__umbel_outputs__"
INCLUDES = "__umbel_includes__"

T = TypeVar("T")


def inputs(*objs: Any) -> Callable[[T], T]:
    """Declare the arguments of a pipeline (datasets) or of an extractor (features)."""
    return _noted(INPUTS, objs)


def outputs(*objs: Any) -> Callable[[T], T]:
    """Declare the features of its featureset an extractor computes."""
    return _noted(OUTPUTS, objs)


def includes(*objs: Any) -> Callable[[T], T]:
    """Pickle further objects with a pipeline's or an extractor's functions.

    Functions are pickled with every object of the user's they refer to; this is for objects found in other ways.
    """

    def decorate(obj: T) -> T:
        if hasattr(type(obj), "with_includes"):
            return obj.with_includes(objs)  # type: ignore[attr-defined, no-any-return]
        return _noted(INCLUDES, objs)(obj)

    return decorate


def _noted(attribute: str, objs: tuple[Any, ...]) -> Callable[[T], T]:
    def decorate(func: T) -> T:
        name = attribute.strip("_").removeprefix("umbel_")
        if hasattr(type(func), "with_includes"):  # an extractor or a pipeline, made of the function below
            kind = type(func).__name__.lower()
            raise InvalidType(
                f"@{name} must be below @{kind} of '{getattr(func, 'name', func)}', found above it",
                hint=f"put @{kind} first, @{name} and the function below it",
            )
        if not callable(func) or isinstance(func, type):
            raise InvalidType(f"@{name} needs a function, found {func!r}", hint="put it above a method")
        setattr(func, attribute, objs)
        return func

    return decorate


def noted(func: Callable[..., Any], attribute: str) -> tuple[Any, ...] | None:
    """Return the decorator arguments recorded on a function, None if it is undecorated."""
    found: tuple[Any, ...] | None = getattr(func, attribute, None)
    return found
