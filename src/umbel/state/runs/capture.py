"""The files that a copy of a shard needs, as of one instant.

These are its latest manifest, the runs it names, and the journal up to the last committed
record. It is read as readers do, without locks, while the shard is written and maintained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from umbel.errors import Damaged
from umbel.state.runs.journal import Journal, JournalHeader
from umbel.state.runs.manifest import JournalPosition, name_of, read_latest
from umbel.state.runs.run import REMEDY
from umbel.state.runs.shard import RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from umbel.state.runs.files import AppendableFiles

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
    for entries in manifest.runs.values():
        yield from (CapturedFile(f"{RUNS}/{part.name}", part.size) for entry in entries for part in entry.parts)
    for number in sorted(manifest.journals - {manifest.position.number}):
        found = next(journal.committed(JournalPosition(number)), None)
        if found is None:
            raise FileNotFoundError(f"file {number} of the journal")
        yield _journal(*found)
    for found in journal.committed(replace(manifest.position, offset=0)):
        yield _journal(*found)


def _journal(name: str, header: JournalHeader) -> CapturedFile:
    return CapturedFile(name, header.end, header.pack())
