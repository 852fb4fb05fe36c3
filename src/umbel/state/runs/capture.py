"""The files or objects that a copy of a shard needs, as of one instant.

These are its latest manifest, the runs it names, and the journal up to the last committed
record. It is read as readers do, without locks, while the shard is written and maintained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from umbel.errors import Damaged
from umbel.state.runs.journal import FOLDER as JOURNAL
from umbel.state.runs.journal import Journal, JournalHeader, journal_name, numbers_of
from umbel.state.runs.manifest import FOLDER as MANIFESTS
from umbel.state.runs.manifest import JournalPosition, Manifest, RunPart, name_of, read_latest
from umbel.state.runs.run import REMEDY
from umbel.state.runs.shard import RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from umbel.state.runs.files import AppendableFiles
    from umbel.state.runs.object_files import ObjectFiles

_ATTEMPTS = 50


@dataclass(frozen=True, slots=True)
class CapturedFile:
    """A file of a shard, as a copy has it.

    Args:
        name: in the shard.
        size: in bytes; the file may have grown since.
        head: the bytes with which the copy begins instead of those of the file, which may have changed since.
    """

    name: str
    size: int
    head: bytes = b""


@dataclass(frozen=True, slots=True)
class CapturedObject:
    """An object of a shard in a bucket.

    Args:
        name: in the shard.
        size: in bytes.
        tag: of its content, given by the storage.
        changed: when it was written, in µs since the epoch.
        data: its content, where it may be deleted also while the shard is pinned.
    """

    name: str
    size: int
    tag: str
    changed: int
    data: bytes | None = None


def capture_objects(files: ObjectFiles) -> list[CapturedObject]:
    """Return the objects of a shard as of one instant.

    It must be pinned: then all of them stay, apart from the manifest, whose content is returned.

    Raises:
        Damaged: an object that the manifest names, or one of the journal before a later one, is missing.
    """
    for _ in range(_ATTEMPTS):
        manifest = read_latest(files)
        found = {each.name: each for folder in (MANIFESTS, RUNS, JOURNAL) for each in _stored(files, folder)}
        needed, sizes = _objects(manifest, found), {part.name: part.size for part in _parts(manifest)}
        missing = [
            name
            for name in needed
            if name not in found or found[name].size != sizes.get(name.rpartition("/")[2], found[name].size)
        ]
        if not missing:
            try:
                data = files.read(needed[0])
            except FileNotFoundError:
                continue
            return [replace(found[needed[0]], data=data), *(found[name] for name in needed[1:])]
    raise Damaged(f"the state {files} lacks {missing[0]}", hint=REMEDY)


def _stored(files: ObjectFiles, folder: str) -> Iterator[CapturedObject]:
    for name, size, changed, tag in files.stamped(folder):
        yield CapturedObject(f"{folder}/{name}", size, tag, int(changed.timestamp() * 1_000_000))


def _objects(manifest: Manifest, found: Mapping[str, CapturedObject]) -> list[str]:
    """Return the names of the objects that a manifest needs, itself first."""
    first, last = manifest.position.next_object, max(numbers_of(found), default=0)
    later = map(journal_name, range(first, last + 1))
    runs = (f"{RUNS}/{name}" for name in sorted(manifest.names))
    return [name_of(manifest.version), *runs, *map(journal_name, sorted(manifest.journals)), *later]


def _parts(manifest: Manifest) -> Iterator[RunPart]:
    return (part for entries in manifest.runs.values() for entry in entries for part in entry.parts)


def capture(files: AppendableFiles, pin: Callable[[CapturedFile], None]) -> None:
    """Pin the files of a shard as of one instant.

    Args:
        files: of the shard.
        pin: makes a file outlive its deletion; raises FileNotFoundError where it has been deleted already.

    Raises:
        Damaged: the manifest names a file that is missing.
    """
    for _ in range(_ATTEMPTS):
        try:
            for each in _needed(files):
                pin(each)
        except FileNotFoundError as error:
            missing = error.filename or error
            continue
        return
    raise Damaged(f"the state {files} lacks {missing}", hint=REMEDY)


def _needed(files: AppendableFiles) -> Iterator[CapturedFile]:
    manifest, journal = read_latest(files), Journal(files)
    if manifest.version:
        name = name_of(manifest.version)
        size = files.size(name)
        if size is None:
            raise FileNotFoundError(name)
        yield CapturedFile(name, size)
    yield from (CapturedFile(f"{RUNS}/{part.name}", part.size) for part in _parts(manifest))
    for number in sorted(manifest.journals - {manifest.position.number}):
        found = next(journal.committed(JournalPosition(number)), None)
        if found is None:
            raise FileNotFoundError(f"file {number} of the journal")
        yield _journal(*found)
    for found in journal.committed(replace(manifest.position, offset=0)):
        yield _journal(*found)


def _journal(name: str, header: JournalHeader) -> CapturedFile:
    return CapturedFile(name, header.end, header.pack())
