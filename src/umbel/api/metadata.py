"""Metadata: owner, description, tags and flags of what people define."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, TypeVar, cast

from umbel.errors import InvalidType, InvalidValue
from umbel.plan.definitions import Metadata

ATTRIBUTE = "__umbel_meta__"
EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+")

T = TypeVar("T")


class Described(Protocol):
    """An object that can be given metadata."""

    def with_meta(self, meta: Metadata) -> Self:
        """Return it with metadata."""

    def description(self) -> str:
        """Return what it is for."""


def metadata(
    owner: str = "", description: str = "", tags: Sequence[str] = (), deprecated: bool = False, deleted: bool = False
) -> Metadata:
    """Return checked metadata.

    Raises:
        InvalidValue: the owner is not an email address, or a value has the wrong type.
    """
    texts = {"owner": owner, "description": description}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise InvalidValue(f"meta: {name} must be a string, found {value!r}", hint="a text")
    if owner and not EMAIL.fullmatch(owner):
        raise InvalidValue(f"meta: owner '{owner}' is not an email address", hint='owner="name@example.com"')
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidValue(f"meta: tags must be a list of strings, found {tags!r}", hint='tags=["pii"]')
    return Metadata(owner, description, tuple(tags), bool(deprecated), bool(deleted))


def meta(
    owner: str = "", description: str = "", tags: Sequence[str] = (), deprecated: bool = False, deleted: bool = False
) -> Callable[[T], T]:
    """Give a dataset, featureset, pipeline or extractor an owner, a description, tags and flags.

    Args:
        owner: an email address.
        description: what it is for.
        tags: they flow down the lineage; "~x" cancels an inherited "x".
        deprecated: whether it should no longer be used.
        deleted: whether a commit treats it as gone.
    """
    found = metadata(owner, description, tags, deprecated, deleted)

    def decorate(obj: T) -> T:
        if isinstance(obj, type) or hasattr(obj, "__code__"):
            if getattr(obj, "__umbel_struct__", None) is not None:
                raise InvalidValue(
                    f"struct '{getattr(obj, '__name__', obj)}' cannot have @meta",
                    hint="remove @meta: what uses the struct has an owner",
                )
            setattr(obj, ATTRIBUTE, found)
            return obj
        if not hasattr(obj, "with_meta"):
            raise InvalidType(f"@meta cannot be applied to {obj!r}", hint="put it on a dataset or featureset")
        return cast("T", cast("Described", obj).with_meta(found))

    return decorate


def meta_of(obj: Any) -> Metadata:
    """Return the metadata a class or function was given before it became a record."""
    found = vars(obj).get(ATTRIBUTE, Metadata())
    assert isinstance(found, Metadata)
    return found


def desc(obj: Any) -> str:
    """Return the description of a dataset, field, featureset, feature, pipeline or extractor."""
    if hasattr(type(obj), "with_meta"):
        return cast("Described", obj).description()
    return meta_of(obj).description if hasattr(obj, "__dict__") else ""
