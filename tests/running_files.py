"""Files of a folder in which processes are at work: some are renamed or deleted while they are read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

ROUNDS = 20  # of listing a folder, for names that come while others are read


def paths(folder: Path) -> list[Path]:
    """Return what is in a folder and its subfolders; `rglob` fails where one of them is deleted meanwhile."""
    return [Path(root, name) for root, folders, files in os.walk(folder) for name in folders + files]


def contents(folder: Path, *, besides: str = "") -> Iterator[tuple[Path, bytes]]:
    """Yield each file with its bytes, also those that a file gets under another name meanwhile.

    `besides`: the beginning of names that are left out.
    """
    read: set[Path] = set()
    for _ in range(ROUNDS):
        new = set(paths(folder)) - read
        if not new:
            break
        for path in sorted(new):
            with contextlib.suppress(FileNotFoundError):  # listed again under its new name, if it has one
                if path.is_file() and not (besides and path.name.startswith(besides)):
                    yield path, path.read_bytes()
        read |= new


def files_with(text: str, folder: Path, *, besides: str = "", more_than: int = 0) -> list[Path]:
    """Return the files that contain the text, of more than so many that were read."""
    read = dict(contents(folder, besides=besides))
    assert len(read) > more_than, f"{len(read)} files in {folder}"
    return [path for path, content in read.items() if text.encode() in content]
