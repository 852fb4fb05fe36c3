"""Checked arguments: classes and functions whose wrong arguments are reported all at once."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar

from umbel.errors import InvalidType, InvalidValue, UmbelError, did_you_mean, misspelt, raise_all

P = ParamSpec("P")
R = TypeVar("R")
SELF = "self"


class ArgumentsMeta(ABCMeta):
    """A metaclass of dataclasses that refuses wrong constructor arguments with one error.

    Classes may define `positional` to take arguments by position, `by_position`, the kind of error otherwise, and `wrong_types`.
    """

    positional: bool = False
    by_position: type[UmbelError] = InvalidType

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        known = {each.name: each for each in fields(cls) if each.init}  # type: ignore[arg-type]
        if args and not cls.positional:
            raise cls.by_position(f"{cls.__name__}: arguments are given by keyword, found {args!r}", hint="name them")
        provided = {**dict(zip(known, args, strict=False)), **kwargs}
        errors = {**cls.wrong_types(provided), **_wrong_names(known, provided)}
        title = f"{cls.__name__}: invalid arguments {', '.join(map(repr, errors))}"
        lines = (f"{name}: {error}" for name, error in errors.items())
        raise_all(lines, InvalidValue, title, hint=f"arguments: {', '.join(known)}")
        return super().__call__(**provided)

    def wrong_types(cls, provided: Mapping[str, Any]) -> dict[str, str]:
        """Return the errors in the values of arguments, by name."""
        return {}


def _wrong_names(known: Mapping[str, Field[Any]], provided: Mapping[str, Any]) -> dict[str, str]:
    needed = [each.name for each in known.values() if each.default is MISSING and each.default_factory is MISSING]
    unknown = {name: f"unknown argument{did_you_mean(name, known)}" for name in provided if name not in known}
    return {name: "missing" for name in needed if name not in provided} | unknown


def checked_call(func: Callable[P, R]) -> Callable[P, R]:
    """Refuse missing, unknown and repeated arguments of a function with an error of umbel's.

    Raises:
        InvalidType: the message names the arguments, the hint those that there are.
    """
    expected = signature(func)

    @wraps(func)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            expected.bind(*args, **kwargs)
        except TypeError:
            found = "; ".join(_wrong_call(expected, args, kwargs))
            shown = ", ".join(name for name in _named(expected) if name != SELF)
            raise InvalidType(f"{func.__name__}: {found}", hint=f"arguments: {shown}") from None
        return func(*args, **kwargs)

    return call


def _named(expected: Signature) -> list[str]:
    """Return the parameters that can be passed by name."""
    kinds = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    return [name for name, each in expected.parameters.items() if each.kind in kinds]


def _wrong_call(expected: Signature, args: Sequence[object], provided: Mapping[str, object]) -> Iterator[str]:
    """Yield what is wrong with the arguments of a call.

    Args:
        expected: the parameters.
        args: the arguments by position.
        provided: those by name.
    """
    parameters, named = expected.parameters, _named(expected)
    kinds = {each.kind for each in parameters.values()}
    places = [name for name in named if parameters[name].kind is Parameter.POSITIONAL_OR_KEYWORD]
    if len(args) > len(places) and Parameter.VAR_POSITIONAL not in kinds:
        own = places[:1] == [SELF]
        yield f"at most {len(places) - own} arguments by position, found {len(args) - own}"
    filled = places[: len(args)]
    yield from (f"'{name}' is passed twice" for name in filled if name in provided)
    unknown = [name for name in provided if name not in named]
    if Parameter.VAR_KEYWORD not in kinds:
        unused = [name for name in named if name not in filled]
        yield from (f"unknown argument '{name}'{did_you_mean(name, unused)}" for name in unknown)
    required = [name for name in named if parameters[name].default is Parameter.empty]
    missing = [name for name in required if name not in filled and name not in provided]
    if missing:
        yield f"{', '.join(map(repr, missing))} missing{misspelt(missing, unknown)}"
