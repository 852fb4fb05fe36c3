"""Names of files: patterns, and names in dead letters as the catalog can store them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.connectors.reading import read
from umbel.connectors import known_files
from umbel.connectors.file_source import FileSource
from umbel.connectors.files import Files
from umbel.errors import InvalidValue
from umbel.formats.declarations import CSV
from umbel.types.dtypes import Int, Optional, Str

SCHEMA = {"user": Int(), "note": Optional(Str())}
LINE = b'{"user":1}\n'


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "names no files"),
        (".", "names no files"),
        ("./", "names no files"),
        ("a\0b", "names no files"),
        ("/abs/*.json", "in the folder"),
        ("../*.json", "in the folder"),
        ("a/../b.json", "in the folder"),
        ("**.json", "must be a whole part"),
        ("a/**b/*.json", "must be a whole part"),
        ("**", "not the last"),
        ("a/**", "not the last"),
    ],
)
def test_a_pattern_that_no_file_can_match_is_refused(pattern: str, reason: str) -> None:
    """A commit ended with an error of pathlib, or nothing was ever read."""
    files = Files(name="f", folder="/x")
    with pytest.raises(InvalidValue, match=reason) as report:
        files.path(pattern)
    assert report.value.hint
    with pytest.raises(InvalidValue, match=reason):
        files.path(pattern, CSV())


def test_usual_patterns_are_taken(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.json").write_bytes(LINE)
    files = Files(name="f", folder=str(tmp_path))
    for pattern in ("**/*", "**/*.json", "a/**/*", "a/b/x.json", "./a/b/*", "*/b/[w-y].json", "**/b/?.json"):
        found = read(files.path(pattern).reader(tmp_path), SCHEMA)
        assert [row[0] for row in found.values()] == [1], pattern
    assert files.path("", "delta").pattern == ""


def source(folder: Path, form: Any = "json") -> FileSource:
    return Files(name="f", folder=str(folder)).path("**/*", form).reader(folder)


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        ("json", LINE + b"broken\n"),
        ("json.gz", b"no gzip"),
        ("parquet", b"damaged"),
        ("avro", b"damaged"),
        ("csv", b"a"),
    ],
)
def test_a_name_that_is_not_utf_8_can_be_stored(tmp_path: Path, ending: str, content: bytes) -> None:
    """Storing a dead letter with it raised an error, again and again."""
    named = os.fsencode(tmp_path) + b"/caf\xe9." + ending.encode()
    with open(named, "wb") as file:  # noqa: PTH123  no path of a text
        file.write(content)
    reader = source(tmp_path, form=CSV(headers=["user", "note"]) if ending == "csv" else ending.partition(".")[0])
    found = read(reader, SCHEMA)
    ((place, reason, _),) = found.dead.values()
    assert place.encode().startswith(f"caf\\xe9.{ending}".encode())
    reason.encode()
    with open(named, "ab") as file:  # noqa: PTH123
        file.write(b" ")
    ((split, _),), _ = reader.plan(json.loads(json.dumps(found.position)), 1)
    (report,) = reader.open(json.loads(json.dumps(split)), SCHEMA, exact=True)
    assert [report.where(0).encode()[:8], report.text(0)[:18]] == [b"caf\\xe9.", b'{"file": "caf\\\\xe9']
    gone = source(tmp_path)
    splits, _ = gone.plan(None, 1 << 30)
    Path(os.fsdecode(named)).unlink()
    (letter,) = gone.open(splits[0][0], SCHEMA, exact=True)
    letter.where(0).encode()


def test_of_a_long_name_the_position_has_the_end(tmp_path: Path) -> None:
    """A catalog in Postgres refuses a position of more than 1,024 characters."""
    folder = tmp_path.joinpath(*["d" * 200] * 6)
    folder.mkdir(parents=True)
    (folder / "a.json").write_bytes(LINE + b"broken\n")
    ((place, _, _),) = read(source(tmp_path), SCHEMA).dead.values()
    assert (len(place) < 1000, place[0], place[-15:]) == (True, "…", "a.json: byte 11")


def test_a_poll_without_new_files_reads_no_names_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (tmp_path / f"{number}.json").write_bytes(b'{"a":1}\n')
    source = Files(name="f", folder=str(tmp_path)).path("*.json").reader(tmp_path)
    _, position = source.plan(None, 1 << 30)
    unread: list[str] = []
    for name in ("pack", "unpack", "pack_stamps", "unpack_stamps"):
        monkeypatch.setattr(known_files, name, unread.append)
    for _ in range(3):
        assert source.plan(json.loads(json.dumps(position)), 1 << 30) == ([], position)
        assert source.lag(position).bytes == 0
    assert unread == []
    monkeypatch.undo()
    (tmp_path / "3.json").write_bytes(b'{"a":1}\n')
    (split, _), *others = source.plan(position, 1 << 30)[0]
    assert (split["file"], others) == ("3.json", [])
    assert source.plan(None, 1 << 30)[1]["count"] == 4
