"""The user's code on the stack: the location of a definition."""

from __future__ import annotations

import sys
from types import FrameType


def caller() -> FrameType:
    """Return the innermost stack frame outside umbel: the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "umbel":
        frame = frame.f_back
    assert frame is not None
    return frame


def location(frame: FrameType) -> str:
    """Return `file:line` of a frame."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
