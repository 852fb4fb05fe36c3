"""What stands in the body of a class that is being decorated, and in the bodies of the classes it inherits from."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any


def annotations_of(cls: type) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the annotations of a class, inherited ones first, and what the names in text annotations mean there.

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
    """Return what a class and those it inherits from define, by name; class and static methods as what they wrap."""
    members = {name: value for each in _lineage(cls) for name, value in vars(each).items()}
    wrapped = (classmethod, staticmethod)
    return {name: value.__func__ if isinstance(value, wrapped) else value for name, value in members.items()}


def _lineage(cls: type) -> list[type]:
    """Return a class and what it inherits from, the most distant first."""
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
