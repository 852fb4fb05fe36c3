"""The LMDB environments of this process: each file is opened once, whoever asks for it.

LMDB's locks belong to the pair of process and file, so a second opening would silently share and then drop them. A
forked child starts with no environment open: what it inherited is let go right after the fork.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import lmdb

from umbel.errors import InvalidValue, Terminal, Transient, UmbelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_READERS = 1024
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Options:
    """How environments are opened.

    Args:
        map_size: the most a shard can hold, in bytes; reserves address space, not disk.
        sync: whether a commit waits until it is on disk.
        trust: seconds for which readers believe that the files are still those that were opened.
    """

    map_size: int = 64 << 30
    sync: bool = True
    trust: float = 0.0


class Cursor(Protocol):
    """What umbel uses of an LMDB cursor."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def set_range(self, key: bytes) -> bool:
        """Go to the first entry at or after a key."""

    def next(self) -> bool:
        """Go to the entry behind."""

    def prev(self) -> bool:
        """Go to the entry before."""

    def last(self) -> bool: ...
    def key(self) -> bytes: ...
    def value(self) -> bytes: ...
    def delete(self) -> bool: ...

    def pop(self, key: bytes) -> bytes | None:
        """Delete a key; return what it held."""

    def replace(self, key: bytes, value: bytes) -> bytes | None: ...

    def putmulti(self, items: Iterable[tuple[bytes, bytes]]) -> tuple[int, int]:
        """Set many keys; return how many there were and how many are new."""

    def iternext(self, keys: bool = True, values: bool = True) -> Iterator[Any]:
        """Yield the entries from here on."""

    def iterprev(self, keys: bool = True, values: bool = True) -> Iterator[Any]:
        """Yield the entries from here back."""


class Tx(Protocol):
    """What umbel uses of an LMDB transaction."""

    def cursor(self) -> Cursor:
        """Return a cursor over all entries."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes) -> bool: ...
    def delete(self, key: bytes) -> bool: ...


class Environment:
    """One LMDB environment: opened when needed, read-only until somebody writes."""

    def __init__(self, path: Path, options: Options) -> None:
        self._path, self._file, self._options = path, str(path / "data.mdb"), options
        self.users = 0
        self._env: lmdb.Environment | None = None
        self._writable = False
        self._inode = 0
        self._seen_at = 0.0
        self._open = 0
        self._writer: int | None = None
        self._is_lost = False
        self._idle = threading.Condition()

    def reading(self) -> Reading:
        """Open a read transaction for a `with` block; None when nothing was written yet."""
        return Reading(self)

    def begin_reading(self) -> lmdb.Transaction | None:
        """Begin a read transaction, which `end_reading` ends; None when nothing was written yet."""
        with self._idle:
            env = self._opened_for_reading()
            self._open += env is not None
        try:
            return None if env is None else env.begin()
        except BaseException:
            self._uncount()
            raise

    def end_reading(self, transaction: lmdb.Transaction) -> None:
        """End a read transaction."""
        try:
            transaction.abort()
        finally:
            self._uncount()

    def explained(self, problem: lmdb.Error) -> UmbelError:
        """Return umbel's error for LMDB's."""
        return _explanation(self._path, problem)

    @contextmanager
    def writing(self) -> Iterator[Tx]:
        """Open the write transaction; wait while another process or thread has it."""
        if self._writer == threading.get_ident():
            raise InvalidValue("this thread has a transaction open on the shard; one has to end before the next begins")
        with self._idle:
            env = self._opened_for_writing()
            env.reader_check()  # slots of readers that died would keep old pages for good
            self._open += 1
        with self._counted(), _explained(self._path), env.begin(write=True) as transaction:
            self._writer = threading.get_ident()
            try:
                yield cast("Tx", transaction)
            finally:
                self._writer = None

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """End the use of the environment that was counted when it was opened."""
        try:
            yield
        finally:
            self._uncount()

    def _uncount(self) -> None:
        with self._idle:
            self._open -= 1
            self._idle.notify_all()

    def exists(self) -> bool:
        """Whether anything was ever written."""
        return _inode(self._file) > 0

    def entries(self) -> int:
        """Return how many entries there are, undo and stamps included."""
        with self._idle:
            env = self._opened_for_reading()
            return int(env.stat()["entries"]) if env is not None else 0

    def size_on_disk(self) -> int:
        """Return the bytes the file takes."""
        return (self._path / "data.mdb").stat().st_blocks * 512 if self.exists() else 0

    def close(self) -> None:
        """Close the environment; it opens again when it is used."""
        with self._idle:
            self._close()

    def inherited(self) -> None:
        """Let go of a parent's environment after a fork.

        With a transaction open it can only be left alone: to end the copy here would end the parent's as well.
        """
        self._idle = threading.Condition()
        self._writer = None
        self._is_lost = self._open > 0
        if not self._is_lost:
            self._close()

    def _close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._env, self._writable = None, False

    def _check(self) -> None:
        """Close the environment when its files were removed, or made anew, since it was opened."""
        if self._is_lost:
            raise Terminal(
                f"this process was forked while {self._path} was in use",
                hint="fork when no snapshot or transaction is open, or start workers by spawning",
            )
        self._seen_at = monotonic()
        if self._env is not None and not self._open and self._inode != _inode(self._file):
            self._close()

    def _opened_for_reading(self) -> lmdb.Environment | None:
        if self._env is None or self._is_lost or monotonic() - self._seen_at >= self._options.trust:
            self._check()
        if self._env is None and self.exists():
            self._env = self._open_env(writable=False)
        return self._env

    def _opened_for_writing(self) -> lmdb.Environment:
        self._check()
        if self._env is not None and self._writable:
            return self._env
        if not self._idle.wait_for(lambda: self._open == 0, _PATIENCE):
            raise Transient(f"{self._path} is being read in this process and cannot be opened for writing")
        self._close()
        self._create()
        self._env, self._writable = self._open_env(writable=True), True
        return self._env

    def _create(self) -> None:
        """Make the files under another name first: a reader finds a whole environment or none."""
        if self.exists():
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f".{self._path.name}-{os.getpid()}-{threading.get_ident()}")
        with _explained(self._path):
            lmdb.open(str(draft), map_size=1 << 20, max_readers=_READERS).close()
        with suppress(OSError):
            draft.rename(self._path)
        shutil.rmtree(draft, ignore_errors=True)
        sync_directory(self._path.parent)

    def _open_env(self, *, writable: bool) -> lmdb.Environment:
        self._inode = _inode(self._file)
        with _explained(self._path):
            return lmdb.open(
                str(self._path),
                map_size=self._options.map_size,
                readonly=not writable,
                sync=self._options.sync,
                create=writable,
                max_readers=_READERS,
            )


class Reading:
    """A read transaction, opened and ended by a `with` block: many times a query, so no generators are involved."""

    __slots__ = ("_environment", "_transaction")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._transaction: lmdb.Transaction | None = None

    def __enter__(self) -> Tx | None:
        try:
            self._transaction = self._environment.begin_reading()
        except lmdb.Error as problem:
            raise self._environment.explained(problem) from problem
        return cast("Tx | None", self._transaction)

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if self._transaction is not None:
            self._environment.end_reading(self._transaction)
        if isinstance(problem, lmdb.Error):
            raise self._environment.explained(problem) from problem


_LOCK = threading.Lock()
_OPEN: dict[Path, Environment] = {}


def acquire(path: Path, options: Options) -> Environment:
    """Return the environment at `path`, the same one for all who ask."""
    place = path.resolve()
    with _LOCK:
        found = _OPEN.get(place)
        if found is None:
            found = _OPEN[place] = Environment(place, options)
        found.users += 1
        return found


def release(environment: Environment) -> None:
    """Give an environment back; the last one to do so closes it."""
    with _LOCK:
        environment.users -= 1
        if environment.users <= 0:
            environment.close()
            for place in [place for place, each in _OPEN.items() if each is environment]:
                del _OPEN[place]


def _after_fork() -> None:
    global _LOCK  # noqa: PLW0603 - the parent's lock may be held by a thread that does not exist here
    _LOCK = threading.Lock()
    for environment in _OPEN.values():
        environment.inherited()


os.register_at_fork(after_in_child=_after_fork)


def sync_directory(directory: Path) -> None:
    """Return when the names of the files in `directory` are on disk."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _inode(file: str) -> int:
    """Return which file lies at this path; 0 when there is none."""
    try:
        return os.stat(file).st_ino  # noqa: PTH116 - once per snapshot, and twice as fast as Path.stat
    except FileNotFoundError:
        return 0


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise umbel's errors for LMDB's."""
    try:
        yield
    except lmdb.Error as problem:
        raise _explanation(path, problem) from problem


def _explanation(path: Path, problem: lmdb.Error) -> UmbelError:
    """Return umbel's error for LMDB's."""
    if isinstance(problem, lmdb.MapFullError):
        return Terminal(
            f"shard {path} is full", hint="open the store with a larger map_size: lmdb:///path?map_size=<bytes>"
        )
    if isinstance(problem, lmdb.BadValsizeError | lmdb.BadTxnError | lmdb.InvalidParameterError):
        return InvalidValue(f"shard {path}: {problem}")
    if isinstance(problem, lmdb.CorruptedError | lmdb.InvalidError | lmdb.VersionMismatchError | lmdb.PanicError):
        return Terminal(f"shard {path} cannot be read: {problem}")
    return Transient(f"shard {path}: {problem}")
