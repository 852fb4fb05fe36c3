"""Annotations and members of a decorated class, including inherited ones."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Container, Iterator, Mapping
from types import FrameType, MethodType
from typing import Any, ClassVar, get_origin

from umbel.errors import InvalidType


def annotations_of(cls: type) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return a class's annotations, inherited ones first, and the namespace for text annotations.

    Text annotations come from `from __future__ import annotations` in the user's module, or from quotes.
    """
    annotations: dict[str, Any] = {}
    names: dict[str, Any] = {}
    for each in _lineage(cls):
        annotations.update(inspect.get_annotations(each))
        names.update(vars(sys.modules[each.__module__]) if each.__module__ in sys.modules else {})
    for scope in reversed(list(_scopes(cls.__module__))):
        names.update(scope)
    return annotations, names


def members_of(cls: type) -> dict[str, Any]:
    """Return a class's members by name, inherited ones included.

    Class and static methods are unwrapped to their functions.
    """
    members = {name: value for each in _lineage(cls) for name, value in vars(each).items()}
    wrapped = (classmethod, staticmethod)
    return {name: value.__func__ if isinstance(value, wrapped) else value for name, value in members.items()}


def check_annotated(cls: type, kind: type, subject: str, where: str, hint: str) -> None:
    """Refuse members of a class that are declared as columns, without a type.

    Args:
        cls: the class.
        kind: the class of what declares a column.
        subject: the object that is made of the class.
        where: `file:line` of it.
        hint: how a column is declared.

    Raises:
        InvalidType: naming all of them.
    """
    annotations, _ = annotations_of(cls)
    names = [name for name, value in members_of(cls).items() if isinstance(value, kind) and name not in annotations]
    if names:
        quoted = ", ".join(f"'{name}'" for name in names)
        raise InvalidType(f"{subject}: {quoted} without a type", where=where, hint=hint)


def declared_with(cls: type, name: str, default: Any) -> Any:
    """Return the value assigned to an annotated name, else `default`.

    The value comes from the class with the annotation or from one derived from it.
    """
    for each in cls.__mro__:
        if name in vars(each):
            return vars(each)[name]
        if name in inspect.get_annotations(each):
            break
    return default


def other_members_of(cls: type, known: Container[str], kinds: tuple[type, ...]) -> dict[str, Any]:
    """Return the other members of a class, inherited ones included, without unwrapping.

    These are methods, constants and nested classes.

    Args:
        cls: the class.
        known: names to leave out.
        kinds: classes of values to leave out.
    """
    members = {name: value for each in _lineage(cls) for name, value in vars(each).items()}
    return {
        name: value
        for name, value in members.items()
        if not name.startswith("__") and name not in known and not isinstance(getattr(value, "__func__", value), kinds)
    }


def as_attribute(member: Any, owner: object) -> Any:
    """Return a class member as attribute access on `owner` returns it.

    `owner` is the object created from the class: class methods are bound to it, static methods unwrapped.
    """
    if isinstance(member, classmethod):
        return MethodType(member.__func__, owner)
    return member.__func__ if isinstance(member, staticmethod) else member


def fields_in(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations of a class, class variables excluded."""
    return {name: value for name, value in annotations.items() if not _is_class_variable(value)}


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.removeprefix("typing.").startswith("ClassVar")
    return ClassVar in (annotation, get_origin(annotation))


def _lineage(cls: type) -> list[type]:
    """Return a class and its base classes, the most distant first."""
    return [each for each in reversed(cls.__mro__) if each is not object]


def _scopes(module: str) -> Iterator[Mapping[str, Any]]:
    # The functions around the class are on the stack while it is decorated: their local names, innermost first. Code run
    # by `exec` may have no module; its globals are those of the frame that decorates.
    frame = inspect.currentframe()
    while frame is not None and _is_own(frame):
        frame = frame.f_back
    code = frame.f_globals if frame is not None else {}
    while frame is not None:
        if frame.f_globals is code or frame.f_globals.get("__name__") == module:
            yield frame.f_locals
        frame = frame.f_back
    yield code


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "umbel"
