"""Metadata: owner, description, tags and flags of user-defined objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, Self, TypeVar, cast

from umbel.api.flags import check_flags
from umbel.definitions.records import Metadata
from umbel.errors import InvalidType, InvalidValue

ATTRIBUTE = "__umbel_meta__"
EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+")

T = TypeVar("T")


class Described(Protocol):
    """An object that accepts metadata."""

    def with_meta(self, meta: Metadata) -> Self:
        """Return the object with metadata."""

    def description(self) -> str:
        """Return the description from the metadata."""


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
    provided: Any = tags
    listed = tuple(provided) if isinstance(provided, Iterable) and not isinstance(provided, str) else (None,)
    if not all(isinstance(tag, str) for tag in listed):
        raise InvalidValue(f"meta: tags must be a list of strings, found {tags!r}", hint='tags=["pii"]')
    check_flags("meta", deprecated=deprecated, deleted=deleted)
    return Metadata(owner, description, listed, deprecated, deleted)


def meta(
    owner: str = "", description: str = "", tags: Sequence[str] = (), deprecated: bool = False, deleted: bool = False
) -> Callable[[T], T]:
    """Set owner, description, tags and flags of a dataset, featureset, pipeline or extractor.

    Args:
        owner: an email address.
        description: the purpose, as free text.
        tags: they flow down the lineage; "~x" cancels an inherited "x".
        deprecated: True if it should no longer be used.
        deleted: True if a commit treats it as deleted.
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
        if not hasattr(type(obj), "with_meta"):
            raise InvalidType(f"@meta cannot be applied to {obj!r}", hint="put it on a dataset or featureset")
        # by the type: a dataset's field of that name would hide the method
        return cast("T", cast("type[Described]", type(obj)).with_meta(cast("Described", obj), found))

    return decorate


def meta_of(obj: Any) -> Metadata:
    """Return the metadata attached to a class or function before it became a record."""
    found = vars(obj).get(ATTRIBUTE, Metadata())
    assert isinstance(found, Metadata)
    return found


def desc(obj: Any) -> str:
    """Return the description of a dataset, field, featureset, feature, pipeline or extractor."""
    if hasattr(type(obj), "with_meta"):
        return cast("type[Described]", type(obj)).description(cast("Described", obj))
    return meta_of(obj).description if hasattr(obj, "__dict__") else ""
