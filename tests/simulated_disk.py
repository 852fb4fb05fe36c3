"""A disk that forgets: the file operations of umbel on real files, and what of them is left after the power failed.

Content is on disk once its file is synced, a name once its folder is. Before each operation the disk can be made to fail there;
`left` then gives the files that are there afterwards: without anything that was not synced, with all of it, or with some.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from umbel.state import disk


class PowerFailure(BaseException):
    """The machine has stopped."""


class File:
    """A file: what was written, and what of it is on disk."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytes(content)


class Disk:
    """A folder on a disk that forgets.

    Args:
        root: the folder; what is in it is on disk.
        before: called before each operation with its number and name.
    """

    def __init__(self, root: Path, before: Callable[[int, str], None] = lambda *_: None) -> None:
        self.root, self.before, self.count = root, before, 0
        self.names: dict[Path, File | None] = {}
        for path in sorted(root.rglob("*")):
            self.names[path] = None if path.is_dir() else File(path.read_bytes())
        self.durable = dict(self.names)
        self.opened: dict[int, File] = {}

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let umbel's file operations go through this disk."""
        with pytest.MonkeyPatch.context() as patch:
            for name in (
                "open_file",
                "write",
                "cut",
                "sync",
                "rename",
                "link",
                "remove",
                "sync_directory",
                "make_folder",
            ):
                patch.setattr(disk, name, self._counted(name, getattr(disk, name)))
            yield

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            first = Path(args[0]) if isinstance(args[0], str) else args[0]
            args = (first, *args[1:])
            mine = first in self.opened if isinstance(first, int) else self.root in (first, *first.parents)
            if mine and name != "make_folder":
                self.count += 1
                self.before(self.count, name)
            found = real(*args)
            if mine or name == "open_file":
                getattr(self, f"_{name}")(found, *args)
            return found

        return run

    def _open_file(self, file: int, path: Path, flags: int = 0) -> None:
        self.opened.pop(file, None)
        if self.root in path.parents:
            self.opened[file] = self.names.setdefault(path, File()) or File()

    def _write(self, _: None, file: int, data: bytes, at: int) -> None:
        content = self.opened[file].content
        content.extend(b"\0" * (at - len(content)))
        content[at : at + len(data)] = bytes(data)

    def _cut(self, _: None, file: int, size: int) -> None:
        del self.opened[file].content[size:]

    def _sync(self, _: None, file: int) -> None:
        self.opened[file].durable = bytes(self.opened[file].content)

    def _rename(self, _: None, path: Path, name: Path) -> None:
        self.names[name] = self.names.pop(path)

    def _link(self, _: None, path: Path, name: Path) -> None:
        self.names[name] = self.names[path]

    def _remove(self, _: None, path: Path) -> None:
        self.names.pop(path, None)

    def _make_folder(self, _: None, path: Path) -> None:
        for each in (path, *path.parents):
            if self.root in each.parents:
                self.names.setdefault(each, None)

    def _sync_directory(self, _: None, folder: Path) -> None:
        self.names |= {path: None for path in folder.iterdir() if path.is_dir()}
        for path in {*self.names, *self.durable}:
            if path.parent == folder:
                if path in self.names:
                    self.durable[path] = self.names[path]
                else:
                    del self.durable[path]

    def left(self, target: Path, survives: str = "nothing", seed: int = 0) -> None:
        """Write what is left after a power failure.

        Args:
            target: a folder that is made anew.
            survives: of what was not synced: `nothing`, `all` or `some`.
            seed: of chance.
        """
        chance = random.Random(seed)
        names = dict(self.durable)
        for path in sorted({*self.names, *self.durable}):
            if survives == "all" or (survives == "some" and chance.random() < 0.5):
                names.pop(path, None)
                names |= {path: self.names[path]} if path in self.names else {}
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for path, file in sorted(names.items(), key=lambda each: each[0]):
            place = target / path.relative_to(self.root)
            if not place.parent.is_dir():
                continue  # the name of its folder is gone
            if file is None:
                place.mkdir()
            else:
                place.write_bytes(self._content(file, survives, chance))

    @staticmethod
    def _content(file: File, survives: str, chance: random.Random) -> bytes:
        if survives == "all" or (survives == "some" and chance.random() < 0.3):
            return bytes(file.content)
        if survives == "some" and len(file.content) > len(file.durable) and file.content.startswith(file.durable):
            end = chance.randrange(len(file.durable), len(file.content) + 1)
            return bytes(file.content[:end])
        return file.durable


def failing(at: int) -> Callable[[int, str], None]:
    """Return what lets the power fail before one operation."""

    def before(number: int, _: str) -> None:
        if number == at:
            raise PowerFailure

    return before
