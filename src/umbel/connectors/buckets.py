"""Object storage buckets: S3-compatible, or local folders in place of buckets.

The operator configures the location of buckets, never a request: with `UMBEL_BUCKETS=file:///folder` the folders in that
folder are the buckets; otherwise they are on S3, at `AWS_ENDPOINT_URL` if that is set.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4

from umbel.connectors.roles import assumed
from umbel.connectors.s3 import S3, S3Connector, is_chosen
from umbel.definitions.secret import Credential
from umbel.errors import InvalidValue, NotSupported, Transient
from umbel.state.disk import remedy_of, sync_directory

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

LOCATION = "UMBEL_BUCKETS"
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
REGION = "us-east-1"
BLOCK = 4 << 20
"""The block size of copies, in bytes."""
_REFUSED = (
    ("NO_SUCH_BUCKET", "there is no such bucket"),
    ("ACCESS_DENIED", "access is denied"),
    ("SIGNATURE_DOES_NOT_MATCH", "the keys do not fit"),
    ("INVALID_ACCESS_KEY_ID", "the access key is not known"),
    ("INVALID_CLIENT_TOKEN_ID", "the access key is not known"),
    ("PERMANENT_REDIRECT", "the bucket is in another region; AWS_REGION says which"),
)
_UNFINISHED = ".tmp"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_ADDRESS = re.compile(r"[0-9.]+|0[xX][0-9a-fA-F.]+")

Reveal = Callable[[Credential], str]
"""Returns a credential in plain text."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored object.

    Args:
        path: its key in the bucket.
        size: in bytes.
        changed: when it was written, in whole seconds since the epoch, as all requests tell it; 0 if unknown.
    """

    path: str
    size: int
    changed: int = field(default=0, compare=False)


def _stored(path: str, info: Any) -> Stored:
    """Return an object as `pyarrow` describes it."""
    return Stored(path, info.size or 0, (info.mtime_ns or 0) // 1_000_000_000)


class Bucket:
    """One bucket.

    Args:
        connect: returns the file system with buckets as folders at its root; called for each request.
        name: of the bucket.
        title: the bucket's description, for messages.
    """

    def __init__(self, connect: Callable[[], FileSystem], name: str, title: str) -> None:
        self._connect, self._name, self._title = connect, _checked(name, name, title), title

    @property
    def _files(self) -> FileSystem:
        return self._connect()

    def listed(self, prefix: str) -> list[Stored]:
        """Return the objects whose keys begin with a prefix, sorted by key."""
        from pyarrow.fs import FileSelector, FileType

        folder = prefix.rpartition("/")[0]
        where = f"{self._name}/{self._inside(folder)}" if folder else self._name
        with self.described():
            found = self._files.get_file_info(FileSelector(where, recursive=True, allow_not_found=bool(folder)))
        named = ((each.path.removeprefix(f"{self._name}/"), each) for each in found if each.type == FileType.File)
        return sorted((_stored(path, each) for path, each in named if path.startswith(prefix)), key=lambda it: it.path)

    def stored(self, path: str) -> Stored:
        """Return an object as it is now; of size 0 if there is none."""
        with self.described():
            return _stored(path, self._files.get_file_info(self._at(path)))

    def fetch_head(self, path: str, target: Path, size: int) -> None:
        """Copy the first bytes of an object to a file."""
        with self.described(), self._files.open_input_stream(self._at(path), compression=None) as source:
            target.write_bytes(source.read(size))

    @contextmanager
    def opened(self, path: str) -> Iterator[Any]:
        """Open an object as a random-access Arrow file."""
        with self.described(), self._files.open_input_file(self._at(path)) as source:
            yield source

    def put(self, source: Path, path: str) -> None:
        """Write a file as an object, atomically."""
        with self.described():
            self._write(source, self._at(path))

    def put_bytes(self, data: bytes, path: str) -> None:
        """Write bytes as an object, atomically."""
        with self.described():
            self._write_bytes(data, self._at(path))

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """Return the bytes of an object, or of a range of it.

        There are fewer where it ends before.
        """
        with self.opened(path) as file:
            whole = file.size()
            found = file.read_at(max(0, min(whole - start if size is None else size, whole - start)), start)
        return bytes(found)

    def content_beside(self, key: str) -> bytes | None:
        """Return the content of an object in any bucket of the storage.

        It is None if there is none.

        Args:
            key: bucket and path.
        """
        try:
            with self._files.open_input_stream(key, compression=None) as source:
                return bytes(source.read())
        except OSError:  # another bucket may be anywhere, and have other credentials
            return None

    def copy_from(self, key: str, path: str, size: int) -> None:
        """Copy an object of any bucket of the storage into this one, within the storage.

        Args:
            key: bucket and path of the object.
            path: of the copy.
            size: in bytes, of both.

        Raises:
            Transient: the copy is not whole.
        """
        self._copy(key, self._at(path), size)

    def copy_to(self, path: str, key: str, size: int) -> None:
        """Copy an object of this bucket to any one of the storage; see `copy_from`."""
        self._copy(self._at(path), key, size)

    def _copy(self, source: str, target: str, size: int) -> None:
        with self.described():
            self._files.copy_file(source, target)
            found = self._files.get_file_info(target).size
        if found != size:
            raise Transient(f"{self._title}: the copy {target} has {found} bytes instead of {size}", hint="try again")

    def delete(self, path: str) -> None:
        """Delete an object, if it exists."""
        with self.described(), suppress(FileNotFoundError):
            self._files.delete_file(self._at(path))

    def check(self, path: str) -> None:
        """Refuse a missing or inaccessible bucket, and a path outside it."""
        from pyarrow.fs import FileSelector

        self._inside(path)
        with self.described():
            self._files.get_file_info(FileSelector(self._name, recursive=False))

    def _write(self, source: Path, path: str) -> None:
        # An object is created when the stream is closed, even after an error in our code. So all is written in one call: an
        # error is then the storage's own, and leaves no visible object.
        import pyarrow as pa

        with self._files.open_output_stream(path, compression=None) as target:
            if source.stat().st_size:
                target.write(pa.memory_map(str(source)).read_buffer())

    def _write_bytes(self, data: bytes, path: str) -> None:
        with self._files.open_output_stream(path, compression=None) as target:  # one call: see `_write`
            target.write(data)

    def _at(self, path: str) -> str:
        return f"{self._name}/{self._inside(path)}"

    def _inside(self, path: str) -> str:
        return _checked(path, self._name, self._title)

    @contextmanager
    def described(self) -> Iterator[None]:
        """Convert storage errors to umbel errors.

        Refusals are terminal, all other errors are transient.
        """
        try:
            yield
        except FileNotFoundError as error:
            raise InvalidValue(f"{self._title}: not found: {error}", hint="check bucket and path") from error
        except PermissionError as error:
            raise InvalidValue(f"{self._title}: access is denied: {error}", hint="check the credentials") from error
        except (NotADirectoryError, IsADirectoryError) as error:
            raise InvalidValue(
                f"{self._title}: a file is where a folder must be, or the other way round: {error}",
                hint="name another path",
            ) from error
        except OSError as error:
            for sign, reason in _REFUSED:
                if sign in str(error):
                    raise InvalidValue(
                        f"{self._title}: {reason}: {error}", hint="check bucket and credentials"
                    ) from error
            if error.errno == errno.ENAMETOOLONG:
                raise InvalidValue(f"{self._title}: {error}", hint="name a shorter path") from error
            hint = remedy_of(error.errno, "try again; is the storage reachable?")
            raise Transient(f"{self._title}: {error}", hint=hint) from error


class FolderBucket(Bucket):
    """A local folder used as a bucket.

    Args:
        root: its parent folder.
        name: of the bucket.
        title: the bucket's description, for messages.
    """

    def __init__(self, root: Path, name: str, title: str) -> None:
        from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

        files = SubTreeFileSystem(str(root), LocalFileSystem())
        super().__init__(lambda: files, name, title)
        self._root = root

    @property
    def folder(self) -> Path:
        """The folder of its objects."""
        return self._root / self._name

    def check(self, path: str) -> None:
        super().check(path)
        with self.described():
            folder = next(each for each in (self._root / self._at(path)).parents if each.exists())
            if not folder.is_dir():
                raise NotADirectoryError(
                    errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder.relative_to(self._root).as_posix()
                )

    def unfinished(self, prefix: str) -> list[Stored]:
        """Return the files of objects that are, or were, being written."""
        named = ((PurePosixPath(each.path), each) for each in self.listed(prefix))
        return [each for path, each in named if path.name.startswith(".") and path.suffix == _UNFINISHED]

    def _write(self, source: Path, path: str) -> None:
        with source.open("rb") as provided:
            self._place(provided, path)

    def _write_bytes(self, data: bytes, path: str) -> None:
        self._place(BytesIO(data), path)

    def _place(self, provided: IO[bytes], path: str) -> None:
        target = self._root / path
        beside = target.with_name(f".{target.name}.{uuid4().hex[:8]}{_UNFINISHED}")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("wb") as file:
                shutil.copyfileobj(provided, file, BLOCK)
                file.flush()
                os.fsync(file.fileno())  # an object recorded as written must survive a power cut
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
        for folder in takewhile(lambda it: it != self._root, target.parents):
            sync_directory(folder)


def bucket_of(connector: S3Connector, reveal: Reveal, environment: Mapping[str, str] = os.environ) -> Bucket:
    """Return the bucket of a connector.

    Args:
        connector: the S3 connector.
        reveal: turns credentials into text.
        environment: the variables with the location of buckets, and the credentials if the connector has none.
    """
    title = f"S3 '{connector.source.name}', bucket '{connector.bucket}'"
    check_name(connector.bucket, title)
    if location := environment.get(LOCATION):
        return FolderBucket(folder_of(location), connector.bucket, title)
    if not isinstance(connector.source, S3):
        raise NotSupported(f"{title}: offline queries read and write S3 only", hint="S3(name=...)")
    return Bucket(_on_s3(connector.source, connector.bucket, reveal, environment), connector.bucket, title)


def folder_of(url: str) -> Path:
    """Return the folder of a URL such as `file:///data`."""
    scheme, colon, rest = url.partition("://")
    path = Path(rest)
    if not colon or scheme != "file" or not path.is_absolute():
        raise NotSupported(f"{LOCATION} must be a URL of a folder, found {url!r:.200}", hint="file:///absolute/folder")
    return path


def chosen(connector: S3Connector, stored: list[Stored]) -> list[Stored]:
    """Return the objects below a connector's prefix that match it.

    Hidden objects are skipped.
    """
    return [each for each in stored if is_chosen(connector, each.path)]


def _on_s3(source: S3, bucket: str, reveal: Reveal, environment: Mapping[str, str]) -> Callable[[], FileSystem]:
    endpoint = next((environment[name] for name in ENDPOINTS if environment.get(name)), None)
    place, key, secret = (endpoint, _region(bucket, endpoint, environment)), *_keys_of(source)
    if key is None or secret is None:
        files = _file_system(place, **{"role_arn": source.role_arn} if source.role_arn else {})
        return lambda: files

    def connect() -> FileSystem:
        keys = (reveal(key), reveal(secret))
        if not source.role_arn:
            return _by_keys(place, *keys)
        found = assumed(f"S3 '{source.name}'", source.role_arn, *keys)
        return _by_keys(place, found.key, found.secret, found.token)

    connect()  # a secret that there is not is refused at once
    return connect


def _keys_of(source: S3) -> tuple[Credential | None, Credential | None]:
    key, secret = source.aws_access_key_id, source.aws_secret_access_key
    if (key is None) != (secret is None):
        raise InvalidValue(
            f"S3 '{source.name}': aws_access_key_id and aws_secret_access_key go together",
            hint="give both; or neither, and the server's own credentials are used",
        )
    return key, secret


@lru_cache(maxsize=64)
def _by_keys(place: tuple[str | None, str], key: str, secret: str, token: str | None = None) -> FileSystem:
    return _file_system(place, access_key=key, secret_key=secret, session_token=token)


def _file_system(place: tuple[str | None, str], **credentials: Any) -> FileSystem:
    from pyarrow.fs import S3FileSystem

    endpoint, region = place
    timeouts: dict[str, Any] = {"connect_timeout": 10, "request_timeout": 60}
    return S3FileSystem(endpoint_override=endpoint, region=region, **timeouts, **credentials)


def _region(bucket: str, endpoint: str | None, environment: Mapping[str, str]) -> str:
    declared = next((environment[name] for name in REGIONS if environment.get(name)), None)
    if declared or endpoint:
        return declared or REGION
    from pyarrow.fs import resolve_s3_region

    try:
        return str(resolve_s3_region(bucket))
    except OSError as error:
        raise InvalidValue(
            f"bucket '{bucket}': cannot find out its region: {error}",
            hint="is the name right? AWS_REGION says the region",
        ) from error


def check_name(bucket: str, title: str) -> None:
    """Refuse an invalid bucket name.

    The name becomes part of the requested host, and must not change it to another host.
    """
    if not _NAME.fullmatch(bucket) or _ADDRESS.fullmatch(bucket):
        raise InvalidValue(
            f"{title}: {bucket!r:.200} is no name of a bucket", hint="letters, digits, '.', '-' and '_'; no address"
        )


def _checked(path: str, name: str, title: str) -> str:
    """Return a path; refuse one that leads outside the bucket."""
    parts = PurePosixPath(path).parts
    if not name or "/" in name or "\0" in path or path.startswith("/") or ".." in parts or not parts:
        raise InvalidValue(f"{title}: {path!r:.200} is no path in a bucket", hint="folder/file, without '..'")
    return path
