"""Files of folders and patterns: links to folders, also those that lead around, and each file once."""

from __future__ import annotations

from pathlib import Path

import pytest

from umbel.transform.inputs import inputs


def linked(folder: Path) -> Path:
    """Return a folder with files, and links to folders outside, inside and around it."""
    for name in ("in/a/x.json", "in/x.json", "in/.hidden/x.json", "archive ä/old/y.json", "archive ä/z.json"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name, target in (("archive", "../archive ä"), ("A", "a"), ("again", "."), ("more", "."), ("top", "..")):
        (folder / "in" / name).symlink_to(target)
    (folder / "archive ä" / "around").symlink_to("../in")
    return folder / "in"


def found(folder: Path, pattern: str = "") -> list[str]:
    """Return the files of a pattern, by their own names."""
    return sorted(str(each.path.resolve().relative_to(folder.parent)) for each in inputs([str(folder / pattern)]))


OUTSIDE = ["archive ä/old/y.json", "archive ä/z.json"]
ALL = [*OUTSIDE, "in/a/x.json", "in/x.json"]


@pytest.mark.parametrize("pattern", ["", "**/*.json", "**", "**/**/*.json", "*"])
def test_links_to_folders_are_followed_once(tmp_path: Path, pattern: str) -> None:
    assert found(linked(tmp_path), pattern) == ALL


def test_a_file_is_read_by_the_name_of_its_own_folder(tmp_path: Path) -> None:
    names = [str(each.path.relative_to(tmp_path / "in")) for each in inputs([str(linked(tmp_path))])]
    assert names == ["a/x.json", "archive/old/y.json", "archive/z.json", "x.json"]


def test_patterns_with_folders_of_any_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = linked(tmp_path)
    assert found(folder, "archive/**/y.json") == OUTSIDE[:1]
    assert found(folder, "**/old") == OUTSIDE[:1]
    assert found(folder, "[a]/**/*.json") == ["in/a/x.json"]
    inner = tmp_path / "in [1]" / "b"
    inner.mkdir(parents=True)
    (inner / "x.json").touch()
    assert [each.path for each in inputs([f"{tmp_path}/in [[]1]/**/x.json"])] == [inner / "x.json"]
    monkeypatch.chdir(inner.parent)
    assert [str(each.path) for each in inputs(["**/*.json"])] == ["b/x.json"]
