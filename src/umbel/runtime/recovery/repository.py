"""A repository of backups in a folder or a bucket: lists and objects.

    backups/<id>.json.gz    the list of a backup; written last, so a backup that is listed is whole
    drafts/<writer>.json.gz what a backup that runs, or was killed, has written so far
    objects/<ab>/<sum>      bytes, by their SHA-256; never changed

An object is written whole or not at all, by a rename in a folder, by one request in a bucket.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from umbel.connectors.buckets import Bucket, FolderBucket, Stored, bucket_of
from umbel.connectors.s3 import S3
from umbel.errors import Damaged, InvalidValue, UnknownName
from umbel.runtime.recovery.listing import BackupList, Part, number_of
from umbel.runtime.recovery.reading_ahead import BlocksAhead
from umbel.state.s3 import check_prefix

_LISTS, _DRAFTS, _OBJECTS = "backups", "drafts", "objects"
_ENDING = ".json.gz"
_FORMS = "a folder: /mnt/backups/umbel, file:///mnt/backups/umbel; or a bucket: s3://bucket/umbel"


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of backups.

    Args:
        bucket: where it is.
        prefix: of all its keys; empty, or ending in a slash.
        title: the URL, for messages.
        blocks: of objects that are read ahead; None to read nothing ahead.
    """

    bucket: Bucket
    prefix: str
    title: str
    blocks: BlocksAhead | None = field(default=None, compare=False)

    @classmethod
    def at(cls, url: str, environment: Mapping[str, str] = os.environ) -> Repository:
        """Return the repository of a URL: a folder's path, `file:///folder` or `s3://bucket/folder`.

        Raises:
            InvalidValue: it is no such URL.
        """
        parts = urlsplit(url)
        if parts.scheme == "s3" and parts.netloc:
            prefix = parts.path.strip("/")
            check_prefix(url, prefix)
            connector = S3(name="backup").bucket(parts.netloc, prefix=prefix, format="json")
            bucket = bucket_of(connector, str, environment)
            return cls(bucket, f"{prefix}/" if prefix else "", url)
        if parts.scheme not in ("", "file") or parts.netloc or not parts.path.strip("/"):
            raise InvalidValue(f"backups cannot be in {url!r:.300}", hint=_FORMS)
        folder = Path(unquote(parts.path) if parts.scheme else url).expanduser().absolute()
        return cls(FolderBucket(folder.parent, folder.name, f"the folder {folder}"), "", str(folder))

    @property
    def folder(self) -> Path | None:
        """Its folder; None if it is in a bucket."""
        return self.bucket.folder if isinstance(self.bucket, FolderBucket) else None

    def check(self) -> None:
        """Refuse a missing or unreadable bucket; create a missing folder.

        Raises:
            InvalidValue: it cannot be used.
        """
        if self.folder is not None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidValue(f"{self.title} cannot be made: {error.strerror}", hint=_FORMS) from error
        self.bucket.check(f"{self.prefix}{_LISTS}")

    def ids(self) -> list[str]:
        """Return the ids of all backups, oldest first.

        Raises:
            InvalidValue: there is no such bucket.
        """
        names = (each.path.removeprefix(f"{self.prefix}{_LISTS}/") for each in self._listed(_LISTS))
        found = sorted(name.removesuffix(_ENDING) for name in names if number_of(name.removesuffix(_ENDING)))
        if not found and self.folder is None:  # a missing bucket is listed as an empty one
            self.bucket.check(f"{self.prefix}{_LISTS}")
        return found

    def chosen(self, backup: str | None) -> str:
        """Return a backup's id by its id or number; the newest when None.

        Raises:
            UnknownName: there is none.
        """
        found = self.ids()
        if not found:
            raise UnknownName(f"there is no whole backup in {self.title}", hint="make one: umbel backup URL")
        if backup is None:
            return found[-1]
        for each in found:
            if each == backup or (backup.isdecimal() and number_of(each) == int(backup)):
                return each
        raise UnknownName(f"there is no backup {backup} in {self.title}; the newest are {', '.join(found[-5:])}")

    def read_list(self, backup: str) -> BackupList:
        """Return the list of a backup.

        Raises:
            Damaged: it differs from what was written.
        """
        return BackupList.unpack(self.bucket.read(self._list(backup)), backup)

    def write_list(self, backup: BackupList) -> None:
        """Write the list of a backup whose objects are all written."""
        self.bucket.put_bytes(backup.pack(), self._list(backup.id))

    def delete_list(self, backup: str) -> None:
        """Delete a backup; its objects stay."""
        self.bucket.delete(self._list(backup))

    def drafts(self) -> dict[str, BackupList]:
        """Return the drafts by their writers; those that cannot be read are left out."""
        found = {}
        for writer in self.writers():
            with suppress(Damaged, InvalidValue):
                found[writer] = BackupList.unpack(self.bucket.read(self._draft(writer)), f"draft {writer}")
        return found

    def writers(self) -> set[str]:
        """Return the writers of all drafts, readable or not."""
        return {each.path.rpartition("/")[2].removesuffix(_ENDING) for each in self._listed(_DRAFTS)}

    def write_draft(self, writer: str, backup: BackupList) -> None:
        """Write what a backup has written so far."""
        self.bucket.put_bytes(backup.pack(), self._draft(writer))

    def delete_draft(self, writer: str) -> None:
        """Delete a draft."""
        self.bucket.delete(self._draft(writer))

    def objects(self) -> dict[str, int]:
        """Return the sizes of all objects, by name."""
        return {each.path.rpartition("/")[2]: each.size for each in self._listed(_OBJECTS)}

    def unfinished(self) -> list[Stored]:
        """Return the parts of lists and objects that killed processes were writing, or others write."""
        if not isinstance(self.bucket, FolderBucket):  # storage has whole objects only
            return []
        return [each for folder in (_LISTS, _OBJECTS) for each in self.bucket.unfinished(f"{self.prefix}{folder}/")]

    def write_object(self, data: bytes) -> str:
        """Write an object; return its name."""
        name = hashlib.sha256(data).hexdigest()
        self.bucket.put_bytes(data, self._object(name))
        return name

    def reads(self, key: str, content: bytes) -> bool:
        """Return whether the repository is in the same storage as an object.

        Args:
            key: bucket and path of the object.
            content: of the object; random, so that no other storage has it.
        """
        return self.folder is None and self.bucket.content_beside(key) == content

    def copy_object(self, key: str, name: str, size: int) -> None:
        """Copy an object of the same storage, within it.

        Args:
            key: bucket and path of the object.
            name: of the copy.
            size: in bytes.

        Raises:
            Transient: the copy is not whole.
        """
        self.bucket.copy_from(key, self._object(name), size)

    def copy_out(self, name: str, key: str, size: int) -> None:
        """Copy an object of the repository to another bucket of the same storage; see `copy_object`."""
        self.bucket.copy_to(self._object(name), key, size)

    def reading_ahead(self) -> Repository:
        """Return the same, reading small parts beside each other at once."""
        return replace(self, blocks=BlocksAhead())

    def read_part(self, part: Part, *, is_alone: bool = False) -> bytes:
        """Return the bytes of a part.

        Args:
            part: the part.
            is_alone: True if the part is a file: those beside it in the object are probably read next.

        Raises:
            ValueError: they are missing, or differ from what was written.
            InvalidValue: access is denied.
        """
        read, blocks = partial(self.bucket.read, self._object(part.object)), self.blocks if is_alone else None
        try:
            data = blocks.range(part.object, part.start, part.size, read) if blocks else read(part.start, part.size)
        except InvalidValue as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise ValueError(f"{self._object(part.object)} is missing in the backup") from error
        if hashlib.sha256(data).hexdigest() != part.sum:
            raise ValueError(f"{self._object(part.object)} is not as it was written")
        return data

    def delete_object(self, name: str) -> None:
        """Delete an object."""
        self.bucket.delete(self._object(name))

    def _listed(self, folder: str) -> list[Stored]:
        return [
            each
            for each in self.bucket.listed(f"{self.prefix}{folder}/")
            if not each.path.rpartition("/")[2].startswith(".")
        ]

    def _list(self, backup: str) -> str:
        return f"{self.prefix}{_LISTS}/{backup}{_ENDING}"

    def _draft(self, writer: str) -> str:
        return f"{self.prefix}{_DRAFTS}/{writer}{_ENDING}"

    def _object(self, name: str) -> str:
        return f"{self.prefix}{_OBJECTS}/{name[:2]}/{name}"


def writer_of(folder: Path) -> str:
    """Return the name of a deployment's drafts: of its machine and folder."""
    return hashlib.sha256(f"{socket.gethostname()}:{folder}".encode()).hexdigest()[:16]
