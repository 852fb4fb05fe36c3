"""`@inputs` and `@outputs`: what a pipeline or an extractor reads and makes. `@includes`: what travels with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from umbel.errors import InvalidType

INPUTS = "__umbel_inputs__"
OUTPUTS = "__umbel_outputs__"
INCLUDES = "__umbel_includes__"

T = TypeVar("T")


def inputs(*objs: Any) -> Callable[[T], T]:
    """Say what the arguments of a pipeline (datasets) or of an extractor (features) are."""
    return _noted(INPUTS, objs)


def outputs(*objs: Any) -> Callable[[T], T]:
    """Say which features of its featureset an extractor makes."""
    return _noted(OUTPUTS, objs)


def includes(*objs: Any) -> Callable[[T], T]:
    """Let further objects travel with a pipeline's or an extractor's functions.

    Functions travel with everything of the user's they refer to; this is for what they find in other ways.
    """

    def decorate(obj: T) -> T:
        if hasattr(type(obj), "with_includes"):
            return obj.with_includes(objs)  # type: ignore[attr-defined, no-any-return]
        return _noted(INCLUDES, objs)(obj)

    return decorate


def _noted(attribute: str, objs: tuple[Any, ...]) -> Callable[[T], T]:
    def decorate(func: T) -> T:
        if not callable(func) or isinstance(func, type):
            raise InvalidType(
                f"@{attribute.strip('_').removeprefix('umbel_')} needs a function, found {func!r}",
                hint="put it above a method",
            )
        setattr(func, attribute, objs)
        return func

    return decorate


def noted(func: Callable[..., Any], attribute: str) -> tuple[Any, ...] | None:
    """Return what a function was decorated with, None when it was not."""
    found: tuple[Any, ...] | None = getattr(func, attribute, None)
    return found
