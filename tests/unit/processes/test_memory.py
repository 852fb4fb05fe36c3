"""The memory that a process may take: of the machine, or of the control groups that limit it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from umbel.processes.memory import Memory, memory

GIB = 1 << 30
SECOND = ("", "memory.max", "memory.current", "inactive_file")
FIRST = ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def group(folder: Path, version: tuple[str, str, str, str], limit: int | str, used: int, cache: int) -> None:
    _, limits, usage, inactive = version
    folder.mkdir(parents=True, exist_ok=True)
    (folder / limits).write_text(f"{limit}\n")
    (folder / usage).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{inactive} {cache}\n")


def found(folder: Path, version: tuple[str, str, str, str], path: str) -> Memory:
    number = 0 if version is SECOND else 4
    (folder / "own").write_text(f"7:cpu,cpuacct:/elsewhere\n{number}:{version[0]}:{path}\n")
    return memory(folder, folder / "own")


@pytest.mark.parametrize("version", [FIRST, SECOND])
def test_the_least_limit_counts(tmp_path: Path, version: tuple[str, str, str, str]) -> None:
    root = tmp_path / version[0]
    group(root / "pods", version, GIB, GIB // 2, 0)
    group(root / "pods" / "umbel", version, 2 * GIB, GIB, GIB // 4)
    assert found(tmp_path, version, "/pods/umbel") == Memory(GIB // 2, GIB, is_limited=True)
    group(root / "pods", version, "max" if version is SECOND else (1 << 63) - 4096, GIB, 0)
    assert found(tmp_path, version, "/pods/umbel") == Memory(GIB + GIB // 4, 2 * GIB, is_limited=True)


@pytest.mark.parametrize("version", [FIRST, SECOND])
def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path, version: tuple[str, str, str, str]) -> None:
    group(tmp_path / version[0], version, GIB, GIB + 4096, 0)
    for path in ("/", "/kubepods/pod7/abc", "/../../abc"):
        assert found(tmp_path, version, path) == Memory(0, GIB, is_limited=True)


def test_without_a_limit_it_is_the_machines(tmp_path: Path) -> None:
    total = psutil.virtual_memory().total
    assert memory(tmp_path, tmp_path / "none").total == total
    group(tmp_path, SECOND, 2 * total, 0, 0)
    assert (found(tmp_path, SECOND, "/").total, found(tmp_path, SECOND, "/").is_limited) == (total, False)
    (tmp_path / "memory.stat").unlink()
    group(tmp_path / "half", SECOND, GIB, 0, 0)
    (tmp_path / "half" / "memory.current").unlink()
    assert found(tmp_path, SECOND, "/half").total == total
