"""Where the user's code defined something."""

from __future__ import annotations

import sys
from types import FrameType


def caller() -> FrameType:
    """Return the innermost frame that is not umbel's own: the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "umbel":
        frame = frame.f_back
    assert frame is not None
    return frame


def place(frame: FrameType) -> str:
    """Return `file:line` of a frame."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
