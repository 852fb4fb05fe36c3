"""The list of a backup: its files, and the location of their bytes."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from umbel.errors import Damaged, Terminal
from umbel.state.stored_json import parse_stored

FORMATS = (1, 2)
"""The second one has the state of a bucket: a journal of objects."""
_FIELDS = ("id", "at", "host", "folder", "version", "batch", "deployment", "purged", "purged_at")
_ID = re.compile(r"(\d{6})_\d{8}T\d{6}Z")


@dataclass(frozen=True, slots=True)
class Part:
    """A range of a file, and the range of an object that has its bytes.

    Args:
        sum: SHA-256 of the bytes.
        size: their number.
        object: its name.
        start: offset in the object.
    """

    sum: str
    size: int
    object: str
    start: int = 0


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a backup.

    Args:
        size: in bytes.
        parts: the bytes after `head`, in order.
        head: the bytes it begins with.
        stat: inode and modification time of the file, by which the next backup knows it again.
    """

    size: int
    parts: tuple[Part, ...]
    head: bytes = b""
    stat: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class BackupList:
    """The list of a backup.

    Args:
        id: `<number>_<UTC instant>`.
        at: when its cut was taken, in seconds since the epoch.
        host: of the deployment.
        folder: of the deployment.
        version: of umbel.
        batch: the last finished batch, None for none.
        files: by name.
        is_in_bucket: True if the state was in a bucket: its journal is then objects.
        deployment: its identity, which a restored deployment has too; empty in lists of older versions.
        purged: the last revision whose erasures were purged before; 0 for none, and in lists of older versions.
        purged_at: when that purge ended, in seconds since the epoch; 0 for none, and in lists of older versions.
    """

    id: str
    at: float
    host: str
    folder: str
    version: str
    batch: int | None
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    is_in_bucket: bool = False
    deployment: str = ""
    purged: int = 0
    purged_at: float = 0.0

    @property
    def purge(self) -> tuple[int, float]:
        """The identity of the last purge; revisions of a restored deployment begin again."""
        return self.purged, self.purged_at

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files.values())

    @property
    def parts(self) -> Iterator[Part]:
        """The parts of all files."""
        return (part for each in self.files.values() for part in each.parts)

    @property
    def objects(self) -> set[str]:
        """The names of all objects with bytes of the files."""
        return {part.object for part in self.parts}

    def pack(self) -> bytes:
        """Return the bytes of the list, with a checksum."""
        files = {
            name: [
                each.size,
                list(each.stat),
                each.head.hex(),
                [[p.sum, p.size, p.object, p.start] for p in each.parts],
            ]
            for name, each in self.files.items()
        }
        content = {name: getattr(self, name) for name in _FIELDS}
        data = json.dumps(
            {"format": FORMATS[self.is_in_bucket], **content, "files": files}, separators=(",", ":")
        ).encode()
        return gzip.compress(b"%08x\n%b" % (zlib.crc32(data), data), 1, mtime=0)

    @classmethod
    def unpack(cls, packed: bytes, name: str) -> BackupList:
        """Return the list of its bytes.

        Raises:
            Damaged: they differ from what was written.
            Terminal: another version of umbel wrote them.
        """
        try:
            crc, _, data = gzip.decompress(packed).partition(b"\n")
            if crc != b"%08x" % zlib.crc32(data):
                raise ValueError("its checksum does not match")
            found = parse_stored(data)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise Damaged(f"the list of backup {name} is damaged: {error}", hint="use another backup: --list") from None
        if found["format"] not in FORMATS:
            raise Terminal(
                f"backup {name} was written in format {found['format']} by another version of umbel; this one "
                f"reads up to {FORMATS[-1]}",
                hint=f"restore it with umbel {found.get('version', '')}",
            )
        files = {name: _entry(*each) for name, each in found.pop("files").items()}
        is_in_bucket = found.pop("format") == FORMATS[1]
        return cls(**found, files=files, is_in_bucket=is_in_bucket)


def _entry(size: int, stat: list[int], head: str, parts: list[list[Any]]) -> FileEntry:
    return FileEntry(size, tuple(Part(*each) for each in parts), bytes.fromhex(head), (stat[0], stat[1]))


def number_of(backup: str) -> int:
    """Return the number of a backup from its id, 0 if it is none."""
    found = _ID.fullmatch(backup)
    return int(found.group(1)) if found else 0


def id_of(number: int, at: float) -> str:
    """Return the id of a backup."""
    return f"{number:06d}_{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M%SZ}"
