"""Objects of buckets as files that can be read at any offset."""

from __future__ import annotations

import io
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import IO, Any

from umbel.connectors.buckets import Bucket, Stored
from umbel.errors import InvalidValue, UmbelError

BLOCK = 1 << 20
"""Bytes of the smallest request."""


@dataclass(frozen=True, slots=True)
class BucketFile:
    """An object of a bucket, as it was when it was listed.

    Errors of the storage are never errors of the file's content: they are umbel's, `Transient` where a retry may succeed.

    Args:
        bucket: the bucket.
        stored: the object.
    """

    bucket: Bucket
    stored: Stored

    @property
    def suffix(self) -> str:
        """The last ending of its name, with the dot, in lower case."""
        return PurePosixPath(self.stored.path).suffix.lower()

    @property
    def identity(self) -> None:
        """None: a file that is replaced while it is read ends the query, by `check`."""
        return

    def size(self) -> int:
        """Return its size in bytes."""
        return self.stored.size

    def open(self) -> IO[bytes]:
        """Open it.

        Raises:
            InvalidValue: it was replaced or removed.
        """
        try:
            ranges = _Ranges(self.bucket, self.stored)
        except UmbelError:
            self.check()
            raise
        try:
            self.check()
        except BaseException:
            ranges.close()
            raise
        return io.BufferedReader(ranges, BLOCK)

    def check(self) -> None:
        """Refuse an object that was replaced since it was listed.

        Raises:
            InvalidValue: it was; parts of an answer to two different inputs are no answer.
        """
        now, before = self.bucket.stored(self.stored.path), self.stored
        if not now.size and not now.changed:
            what = "it was removed"
        elif now.size != before.size:
            what = f"it had {before.size} bytes, and has {now.size}"
        elif before.changed and now.changed != before.changed:
            what = f"it was written at {_spelled(before.changed)}, and again at {_spelled(now.changed)}"
        else:
            return
        raise InvalidValue(
            f"input file '{before.path}' was changed meanwhile: {what}", hint="ask again, of what is there now"
        )


def _spelled(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


class _Ranges(io.RawIOBase):
    """Reads an object by requests for ranges."""

    def __init__(self, bucket: Bucket, stored: Stored) -> None:
        self._bucket, self._closing, self._at = bucket, ExitStack(), 0
        self._source: Any = self._closing.enter_context(bucket.opened(stored.path))
        self.size = int(self._source.size())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence] + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, target: Any) -> int:
        length = min(len(target), max(0, self.size - self._at))
        if not length:
            return 0
        with self._bucket.described():
            data = self._source.read_at(length, self._at)
        target[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._closing.close()
        super().close()
