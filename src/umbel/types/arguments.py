"""Checked constructor arguments: classes whose wrong arguments are reported all at once."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from umbel.errors import InvalidType, InvalidValue, UmbelError, did_you_mean, raise_all


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
