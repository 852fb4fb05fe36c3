"""The memory that this process may take: of the machine, or of its container."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
FIGURES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""By controller, none in version 2: the files of limit and usage, and what `memory.stat` calls the cached files not in use."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory, in bytes.

    Args:
        available: what processes can still get.
        total: all of it.
        is_limited: True if a control group limits it to less than the machine has, as a container's does.
    """

    available: int
    total: int
    is_limited: bool = False


def memory(groups: Path = GROUPS, own: Path = OWN_GROUPS) -> Memory:
    """Return the memory of the machine, or of the control group with the least.

    Args:
        groups: the folder of the control groups, of version 2, or of version 1 with one below it called `memory`.
        own: the file that names the groups of this process.
    """
    import psutil

    machine = psutil.virtual_memory()
    found = Memory(machine.available, machine.total)
    for group in _limited(groups, own):
        if group.total < machine.total and group.available < found.available:
            found = Memory(group.available, group.total, is_limited=True)
    return found


def _limited(groups: Path, own: Path) -> Iterator[Memory]:
    """Yield the limits of the groups of this process, and of those above them."""
    lines = own.read_text(encoding="utf-8").splitlines() if own.exists() else []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in FIGURES:
            root = groups / controllers
            folder = root / path.lstrip("/")
            # in a container the path may be that on the host, and the container's own group is the root
            for each in (folder, *folder.parents):
                yield from _limit(each, *FIGURES[controllers])
                if each == root:
                    break


def _limit(folder: Path, limit: str, usage: str, cache: str) -> Iterator[Memory]:
    """Yield the limit of a group, if it has one.

    What the system can drop of its cached files counts as available.
    """
    with suppress(OSError, ValueError):
        total, used = (int((folder / name).read_text(encoding="utf-8")) for name in (limit, usage))
        figures = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines())
        yield Memory(max(0, total - used + int(figures.get(cache, 0))), total)
