"""The user's folder on the import path, without shadowing Python's or umbel's modules.

Python puts the folder it is started in before everything else, so that a `queue.py` there is taken for the standard library's.
Umbel's processes are started without that (`PYTHONSAFEPATH`), and put the folder after the standard library themselves.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

SAFE = "PYTHONSAFEPATH"
"""If set, Python does not put the folder of a script, or the current one, before the standard library."""


def importable(folder: Path) -> None:
    """Add a folder to the import path, after the standard library.

    Its modules are found before installed packages, except those that umbel needs.
    """
    os.environ.setdefault(SAFE, "1")
    name = str(folder.absolute())
    sys.path[:] = [each for each in sys.path if each not in ("", name)]
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    location = next((location for location, each in enumerate(sys.path) if each in installed), len(sys.path))
    others = list(sys.path)
    sys.path.insert(location, name)
    hidden = {each for each in _modules(folder) if PathFinder.find_spec(each, others) is not None}
    needed = hidden & _needed() if hidden - sys.stdlib_module_names else set()
    if needed:
        sys.meta_path.insert(0, _Installed(frozenset(needed), others))


class _Installed(MetaPathFinder):
    """Finds packages that umbel needs in their installed location, never in a user's folder."""

    def __init__(self, names: frozenset[str], path: list[str]) -> None:
        self._names, self._path = names, path

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """Return the spec of such a package; None for modules with the usual lookup."""
        return PathFinder.find_spec(fullname, self._path) if path is None and fullname in self._names else None


def _modules(folder: Path) -> Iterator[str]:
    for each in folder.iterdir() if folder.is_dir() else ():
        if each.suffix == ".py" or _is_package(each):
            yield each.stem


def _is_package(folder: Path) -> bool:
    try:
        return (folder / "__init__.py").exists()
    except PermissionError:  # such as `lost+found` at the root of a volume: Python cannot import it either
        return False


def _needed() -> set[str]:
    """Return the module names of umbel's packages and of its dependencies, transitively."""
    names, known, waiting = {"umbel"}, set[str](), ["umbel"]
    while waiting:
        package = waiting.pop()
        try:
            found = distribution(package)
        except PackageNotFoundError:
            continue  # a dependency for another platform
        for file in found.files or ():
            top = file.parts[0]
            names.add(top.partition(".")[0] if len(file.parts) == 1 else top)
        required = (re.split(r"[^A-Za-z0-9._-]", text)[0] for text in found.requires or () if "extra ==" not in text)
        fresh = {each.lower() for each in required} - known
        known |= fresh
        waiting += fresh
    return names
