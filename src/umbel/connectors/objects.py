"""Objects of a bucket as files: listing from a name on, ranges of one version."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import IO, Any, ClassVar

from umbel.errors import InvalidValue, PackageError, Transient
from umbel.formats.stored import FileLostError, Stamp, StoredFile

LISTED_AT_ONCE = 100_000
"""Names looked at in one listing: a hundred requests."""
PAGE = 1000
WHOLE_BYTES = 1 << 20
"""An object up to this size is read with one request."""
AT_ONCE = 16
"""Small objects that are fetched at once: a request takes some 20 ms, and the rows of it less than one."""
BLOCK = 256 << 10
"""Bytes of the smallest request for a part of a larger object."""
RETRIES = {"max_retries": 5, "retry_timeout": timedelta(seconds=20)}
CLIENT = {"timeout": timedelta(seconds=60), "connect_timeout": timedelta(seconds=10)}

CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_DECODED = "GCS error: Received non-partial response"
"""What the client says of an object that Google's storage decompresses."""
_UNREADABLE = re.compile(r'Path "(.+)"(?: contained|: Encountered)', re.DOTALL)
"""Matches the name in the error of an object that the client cannot name."""
LASTING = {
    "NoSuchBucket": ("there is no such bucket", "check the name of the bucket"),
    "AccessDenied": ("access is denied", "it needs the right to list the bucket and to read its objects"),
    "AllAccessDisabled": ("access is denied", "it needs the right to list the bucket and to read its objects"),
    "SignatureDoesNotMatch": ("the secret key does not fit the access key", "check both"),
    "InvalidAccessKeyId": ("the access key is not known", "check it"),
    "ExpiredToken": ("the credentials have expired", "renew them"),
    "PermanentRedirect": ("the bucket is in another region", "AWS_REGION says which"),
    "AuthorizationHeaderMalformed": ("the bucket is in another region", "AWS_REGION says which"),
    "UserProjectMissing": ("the bucket asks its readers to pay", "use a bucket that does not"),
}
"""Codes of errors that trying again does not mend, with the reason and the remedy."""


class StorageRefused(Transient):
    """The storage refuses, and somebody must do something about it; then it is read on."""


OVERWRITTEN = "the object was overwritten before it was read"


@dataclass(frozen=True)
class Objects:
    """The objects of a bucket that match a pattern.

    A stamp is the size, and a number made of the ETag.

    Args:
        title: of the bucket, for messages.
        connect: returns the bucket; called where it is read.
        prefix: the common beginning of the names.
        matches: whether a name below the prefix is one of these.
        most: names looked at in one listing.
    """

    title: str
    connect: Callable[[], Any]
    prefix: str
    matches: Callable[[str], bool]
    most: int = LISTED_AT_ONCE

    is_costly: ClassVar[bool] = True
    trouble: ClassVar[str] = ""

    @property
    def failure_domain(self) -> str:
        return self.title

    def listed(self, start: str) -> tuple[dict[str, Stamp], str]:
        found, seen = dict[str, Stamp](), 0
        for page in self._pages(start):
            for facts in page:
                name = facts["path"]
                if name > self.prefix and not name.startswith(self.prefix):
                    return found, ""  # names are sorted
                if name > start and self.matches(name):
                    found[name] = _stamp(facts)
            seen += len(page)
            if seen >= self.most and page:
                return found, page[-1]["path"]
        return found, ""

    def file(self, name: str, stamp: Stamp | None) -> ObjectFile:
        return ObjectFile(self, name, stamp)

    def fetch_ahead(self, files: Sequence[StoredFile]) -> None:
        def fetch(file: StoredFile) -> None:
            with suppress(OSError, FileLostError, Transient):  # it is fetched again where it is read
                file.open().close()

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(fetch, files))

    def spelled(self, stamp: Stamp) -> str:
        return f"{stamp[0]} bytes, version {stamp[1] & 0xFFFFFFFF:08x}"

    def examine(self) -> None:
        """Check that the bucket exists and may be listed."""
        try:
            next(iter(self._pages("")), None)
        except StorageRefused as error:
            raise InvalidValue(error.message, hint=error.hint) from None

    def connected(self) -> Any:
        """Return the bucket.

        Raises:
            StorageRefused: there are no credentials for it now, such as a role that may not be assumed any more.
        """
        try:
            return self.connect()
        except InvalidValue as error:
            raise StorageRefused(error.message, hint=error.hint) from None

    def _pages(self, start: str) -> Iterator[Any]:
        import_store()
        import obstore
        from obstore.store import LocalStore

        folder = self.prefix.rpartition("/")[0] or None
        offset = max(start, self.prefix[:-1]) or None  # an object named as the prefix counts
        bucket = self.connected()
        with self.described():
            pages = obstore.list(bucket, folder, offset=offset, chunk_size=PAGE)
            if isinstance(bucket, LocalStore):  # which has the order of the disk
                yield sorted((facts for page in pages for facts in page), key=lambda facts: facts["path"])
            else:
                yield from pages

    @contextmanager
    def described(self) -> Iterator[None]:
        """Turn errors of the storage into umbel's."""
        import_store()
        from obstore import exceptions

        try:
            yield
        except (exceptions.BaseError, FileNotFoundError, PermissionError) as error:
            raise self._translated(error) from None  # its text has parts of the credentials

    def _translated(self, error: Exception) -> Exception:
        from obstore import exceptions

        text = str(error)
        code = (CODE.search(text) or [None, ""])[1]
        status = (_STATUS.search(text) or [None, ""])[1]
        if code in LASTING:
            return StorageRefused(f"{self.title}: {LASTING[code][0]}", hint=LASTING[code][1])
        if isinstance(error, exceptions.InvalidPathError):
            found = _UNREADABLE.search(text)
            return StorageRefused(
                f"{self.title}: it cannot be listed past an object whose name has an empty part, '.' or '..' as a part, or a "
                f"control character: {found[1] if found else text.partition(chr(10))[0]!r}",
                hint="rename or delete it, or choose a prefix or a path whose folder does not have it",
            )
        if code == "InvalidObjectState":
            return FileLostError("the object is archived: restore it, and copy it to another name")
        if isinstance(error, exceptions.PreconditionError):
            return FileLostError(OVERWRITTEN)
        if _DECODED in text:
            return FileLostError(
                "the storage decompresses it, as it has Content-Encoding: gzip, and sends no parts of it: "
                "store it under another name, without that header, and with .gz at the end of the name"
            )
        if isinstance(error, FileNotFoundError | exceptions.NotFoundError):
            return FileNotFoundError()
        if isinstance(error, PermissionError | exceptions.PermissionDeniedError | exceptions.UnauthenticatedError) or (
            status in {"401", "403"}
        ):
            return StorageRefused(f"{self.title}: {LASTING['AccessDenied'][0]}", hint=LASTING["AccessDenied"][1])
        reason = f"status {status}, {code}" if status else "it does not answer"
        return Transient(f"{self.title}: {reason.rstrip(', ')}", hint="see that the storage runs and can be reached")


@dataclass
class ObjectFile:
    """One version of an object.

    Args:
        objects: its bucket.
        name: its key.
        stamp: of the version; None for any.
    """

    objects: Objects
    name: str
    stamp: Stamp | None
    _tag: str | None = field(default=None, init=False)
    _content: bytes | None = field(default=None, init=False, repr=False)
    _bucket: Any = field(default=None, init=False, repr=False)

    @property
    def suffix(self) -> str:
        """The last ending of its name, with the dot, in lower case."""
        return PurePosixPath(self.name).suffix.lower()

    @property
    def identity(self) -> Hashable:
        """Its bucket, key and version; None for any version."""
        return None if self.stamp is None else (self.objects.title, self.name, self.stamp)

    def size(self) -> int:
        """Return its size in bytes."""
        if self.stamp is None:
            import obstore

            with self.objects.described():
                self.stamp = _stamp(obstore.head(self._connected(), self.name))
        return self.stamp[0]

    def open(self) -> IO[bytes]:
        """Open it; a small object is fetched once."""
        if self.size() > WHOLE_BYTES:
            return io.BufferedReader(_Ranges(self), BLOCK)
        if self._content is None:
            self._content = self.fetch(0, self.size())
        return io.BytesIO(self._content)

    def fetch(self, begin: int, end: int) -> bytes:
        """Return a range of its bytes.

        Raises:
            FileNotFoundError: it was deleted.
            FileLostError: it was overwritten.
            Transient: the storage does not answer.
        """
        import obstore

        if begin >= end:
            return b""
        options: Any = {"range": (begin, end)}
        if self._tag is not None:
            options["if_match"] = self._tag
        with self.objects.described():
            answer = obstore.get(self._connected(), self.name, options=options)
            if self.stamp is not None and _stamp(answer.meta) != self.stamp:
                raise FileLostError(OVERWRITTEN)
            self._tag = answer.meta["e_tag"]
            return bytes(answer.bytes())

    def _connected(self) -> Any:
        if self._bucket is None:
            self._bucket = self.objects.connected()
        return self._bucket


class _Ranges(io.RawIOBase):
    """Reads an object by requests for ranges."""

    def __init__(self, file: ObjectFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size()}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, target: Any) -> int:
        end = min(self._at + len(target), self._file.size())
        data = self._file.fetch(self._at, end)
        target[: len(data)] = data
        self._at += len(data)
        return len(data)


def import_store() -> None:
    """Check that the package that speaks to object storage is installed.

    Raises:
        PackageError: it is not.
    """
    try:
        import obstore  # noqa: F401
    except ImportError as error:
        raise PackageError("files in buckets need the package obstore", hint="pip install 'umbel[s3]'") from error


def _stamp(facts: Any) -> Stamp:
    """Return the stamp that identifies a version of an object."""
    mark = (facts["e_tag"] or "").strip('"') or str(int(facts["last_modified"].timestamp()))
    return facts["size"], int.from_bytes(blake2b(mark.encode(), digest_size=8).digest(), "big", signed=True)
