"""The repository speaks of umbel alone: of no machine, of no registry, and of nothing left undone."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.house.sources import ROOT, modules, shown, tracked

TEXT = {
    ".py",
    ".md",
    ".toml",
    ".txt",
    ".lock",
    ".yaml",
    ".yml",
    ".cfg",
    ".sh",
    ".proto",
    ".html",
    ".css",
    ".properties",
    "",
}
FORBIDDEN = {
    "a path of somebody's machine": r"(?<![\w.])/(work|root|home|Users|opt)/\w",
    "a package registry": r"pypi\.|pythonhosted|mvnrepository|repo1\.maven|registry\.npmjs|--(extra-)?index-url\s+http",
    "something left undone": r"\b(TODO|FIXME|XXX|HACK)\b",
    "a folder outside": r"\.\./shared",
    "a private or public address": r"(?<![=\d.])(10|192\.168|172\.(1[6-9]|2\d|3[01]))(\.\d{1,3}){2,3}\b",
}
LOOSE = r"raise NotImplementedError|# type: ignore(?!\[)|except:\s*$|pragma: no cover"


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_has(what: str) -> None:
    found = []
    for path in tracked():
        if path.suffix in TEXT and path != ROOT / "tests" / "house" / "test_repository.py":
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if re.search(FORBIDDEN[what], line):
                    found.append(f"{shown(path, number)} {line.strip()[:100]}")
    assert found == []


def test_nothing_is_a_stub() -> None:
    lines = (
        (shown(path, number), line)
        for path in modules("src", "benchmarks", "examples")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    )
    assert [f"{place} {line.strip()[:100]}" for place, line in lines if re.search(LOOSE, line)] == []


def test_the_lock_has_every_dependency_by_version_and_hash() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([a-z0-9-]+)==\S+(?: ;.*)? \\\n    --hash=sha256:", lock, re.MULTILINE))
    assert len(re.findall(r"^[a-z]", lock, re.MULTILINE)) == len(re.findall(r"^[a-z0-9-]+==", lock, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requested = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    assert {re.split(r"[<>=!~\[; ]", text)[0].lower() for text in requested} - locked == set()


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "index.md").read_text(encoding="utf-8")
    names = [path.stem for path in sorted(folder.glob("[0-9]*.md"))]
    assert [name for name in names if name not in index and ":glob:" not in index] == []
    assert [int(name[:4]) for name in names] == sorted({int(name[:4]) for name in names})
