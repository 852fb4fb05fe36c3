"""Building and installing packages into temporary folders, without a network."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).parent / "package"


def install(source: Path, target: Path) -> Path:
    """Build the wheel of a package and unpack it into a folder, as an installer does; return the folder."""
    wheels = target.with_name(f"{target.name}-wheels")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def declare(target: Path, package: str, group: str, entries: dict[str, str], modules: dict[str, str]) -> Path:
    """Write an installed package: its modules and its entry points of one group."""
    facts = target / f"{package.replace('-', '_')}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    points = "".join(f"{name} = {value}\n" for name, value in entries.items())
    (facts / "entry_points.txt").write_text(f"[{group}]\n{points}", encoding="utf-8")
    for name, text in modules.items():
        (target / f"{name}.py").write_text(text, encoding="utf-8")
    return target
