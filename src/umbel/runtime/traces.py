"""Traces: files of a deployment in which the bytes of a value are."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterable
from pathlib import Path

SHORTEST = 6
"""Values of fewer bytes are everywhere by chance, and are not looked for."""


def traces(folder: Path, values: Iterable[object]) -> list[str]:
    """Return the files that have the text of a value, relative to the folder.

    What is compressed is not looked into.

    Args:
        folder: of the deployment.
        values: of erased keys.
    """
    needles = {needle for value in values for needle in _spellings(value) if len(needle) >= SHORTEST}
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()) if needles else ()
    return [path.relative_to(folder).as_posix() for path in paths if _has(path, needles)]


def _spellings(value: object) -> set[bytes]:
    text = value if isinstance(value, str) else str(value)
    return {text.encode("utf-8", "surrogatepass"), json.dumps(text)[1:-1].encode()}


def _has(path: Path, needles: Iterable[bytes]) -> bool:
    try:
        with path.open("rb") as file:
            if not path.stat().st_size:
                return False
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return any(content.find(needle) >= 0 for needle in needles)
    except (FileNotFoundError, ValueError):  # deleted meanwhile, or emptied
        return False
