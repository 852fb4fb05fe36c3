"""API keys, and their quotas: token buckets shared by all processes of a collector."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from umbel.errors import InvalidType, InvalidValue
from umbel.request_errors import Forbidden, OverQuota, Unauthenticated
from umbel.state import disk

_BUCKET = struct.Struct("<dd")
_MEMBERS = frozenset({"key", "sha256", "events_per_second", "burst", "streams"})
HINT = "Authorization: Bearer KEY; the collector's --keys file lists the keys"


class TokenBucket:
    """A token bucket in a file, shared by processes.

    A request is admitted while there are tokens and may take more than there are: the debt is paid by waiting.

    Args:
        path: its file.
        rate: tokens per second.
        burst: tokens that it has at most.
    """

    def __init__(self, path: Path, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self._file = os.fdopen(disk.open_file(path, disk.CREATE), "r+b", buffering=0)
        with self._locked():  # another process may make it, too
            if os.fstat(self._file.fileno()).st_size < _BUCKET.size:
                self._file.write(_BUCKET.pack(burst, time.monotonic()))
        self._shared = mmap.mmap(self._file.fileno(), _BUCKET.size)

    def take(self, tokens: float) -> float:
        """Take tokens; return 0, or the seconds after which there will be some."""
        with self._locked():
            left, at = _BUCKET.unpack_from(self._shared)
            now = time.monotonic()
            left = min(self.burst, left + max(0.0, now - at) * self.rate)  # the clock begins anew with the machine
            _BUCKET.pack_into(self._shared, 0, left - tokens if left > 0 else left, now)
            return 0.0 if left > 0 else float(-left / self.rate)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes out for a block."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key by which a client may send events.

    Args:
        name: for messages and dead letters.
        streams: those it may send to; all when empty.
        bucket: its quota, None for none.
    """

    name: str
    streams: frozenset[str]
    bucket: TokenBucket | None

    def take(self, events: int) -> None:
        """Count events against the quota.

        Raises:
            OverQuota: it is used up.
        """
        wait = 0.0 if self.bucket is None else self.bucket.take(events)
        if wait and self.bucket is not None:
            raise OverQuota(
                f"the key '{self.name}' may send {self.bucket.rate:g} events per second",
                hint="send it again after Retry-After seconds",
                wait=wait,
            )


@dataclass(slots=True)
class ApiKeys:
    """The keys of a file, read again when it changes.

    Args:
        path: of the file.
        folder: of the buckets.
    """

    path: Path
    folder: Path
    _keys: Mapping[bytes, ApiKey] = field(default_factory=dict)
    _stamp: tuple[int, int] = (0, 0)

    def refresh(self) -> None:
        """Read the file if it has changed.

        Raises:
            InvalidValue: it cannot be read; the keys before stay valid.
            InvalidType: a member has another type.
        """
        try:
            status = self.path.stat()
            stamp = status.st_mtime_ns, status.st_size
            if stamp == self._stamp:
                return
            found = tomllib.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidValue(f"the file of keys {self.path} cannot be read: {error}") from None
        disk.make_folder(self.folder)
        declared = [_declared(name, each) for name, each in found.items()]
        _check_apart(declared)
        self._keys = {each.digest: each.opened(self.folder) for each in declared}
        self._stamp = stamp

    def key_of(self, headers: Mapping[bytes, bytes], stream: str) -> ApiKey:
        """Return the key that a request has.

        Raises:
            Unauthenticated: it has none, or one that is not in the file.
            Forbidden: it may not send to the stream.
        """
        scheme, _, text = headers.get(b"authorization", b"").partition(b" ")
        sent = text.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        found = self._keys.get(hashlib.sha256(sent).digest()) if sent else None
        if found is None:
            raise Unauthenticated("the key is not valid" if sent else "a key is required", hint=HINT)
        if found.streams and stream not in found.streams:
            raise Forbidden(f"the key '{found.name}' may not send to '{stream}'")
        return found


@dataclass(frozen=True, slots=True)
class _Declared:
    name: str
    digest: bytes
    rate: float
    burst: float
    streams: frozenset[str]

    def opened(self, folder: Path) -> ApiKey:
        file = folder / hashlib.sha256(self.name.encode()).hexdigest()[:32]
        return ApiKey(self.name, self.streams, TokenBucket(file, self.rate, self.burst) if self.rate else None)


def _declared(name: str, found: Any) -> _Declared:
    where = f"the key '{name}'"
    if not isinstance(found, dict) or set(found) - _MEMBERS or ("key" in found) == ("sha256" in found):
        raise InvalidValue(
            f"{where} must be a table with key or sha256, and may have events_per_second, burst and streams",
            hint='[mobile]\nkey = "…"\nevents_per_second = 1000',
        )
    streams = found.get("streams", [])
    if not isinstance(streams, list) or not all(isinstance(each, str) for each in streams):
        raise InvalidType(f"{where}: streams is a list of texts")
    return _Declared(name, _digest(where, found), *_quota(where, found), frozenset(streams))


def _quota(where: str, found: Mapping[str, Any]) -> tuple[float, float]:
    """Return the rate and the burst of a key, 0 without a quota."""
    numbers = {each: found[each] for each in ("events_per_second", "burst") if each in found}
    if not all(type(each) in (int, float) for each in numbers.values()):
        raise InvalidType(f"{where}: events_per_second and burst are numbers")
    if not all(0 < each < 1e12 for each in numbers.values()):
        raise InvalidValue(
            f"{where}: events_per_second and burst must be above 0, and below 1e12",
            hint="leave them out for no quota; a key that may send nothing is one that is not in the file",
        )
    if not numbers:
        return 0.0, 0.0
    if "events_per_second" not in numbers:
        raise InvalidValue(f"{where} has burst without events_per_second", hint="give both, or neither for no quota")
    rate = float(numbers["events_per_second"])
    return rate, max(float(numbers.get("burst", rate)), 1.0)


def _check_apart(declared: Iterable[_Declared]) -> None:
    """Check that no two names have one key.

    One of them would have the quota and the streams.

    Raises:
        InvalidValue: two have.
    """
    names = dict[bytes, str]()
    for each in declared:
        if each.digest in names:
            raise InvalidValue(
                f"'{names[each.digest]}' and '{each.name}' have the same key", hint="give each a key of its own"
            )
        names[each.digest] = each.name


def _digest(where: str, found: Mapping[str, Any]) -> bytes:
    key = found.get("key")
    if isinstance(key, str) and len(key) >= 8:
        return hashlib.sha256(key.encode()).digest()
    try:
        digest = bytes.fromhex(found["sha256"])
    except (KeyError, TypeError, ValueError):
        digest = b""
    if len(digest) != 32:
        raise InvalidValue(f"{where}: key has at least 8 characters, or sha256 has 64 hexadecimal digits")
    return digest
