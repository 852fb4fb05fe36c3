"""The open LMDB environments of this process; each file is opened once and shared.

LMDB's locks belong to the pair of process and file: a second opening would silently share the locks and drop them when it is
closed. A forked child starts with no environment open: the inherited ones are released right after the fork.
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

from umbel.errors import Damaged, InvalidValue, Terminal, Transient, UmbelError
from umbel.state.lmdb_checks import fence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_READERS = 1024
_PATIENCE = 30.0
REMEDY = "restore umbel's folder as a whole from one backup: its logs, state and catalog belong together"


@dataclass(frozen=True, slots=True)
class Options:
    """Options for opening LMDB environments.

    Args:
        map_size: the largest size of a shard, in bytes; reserves address space, not disk.
        sync: True if a commit waits until it is on disk.
        trust: seconds between a reader's checks that the files are still the opened ones.
    """

    map_size: int = 64 << 30
    sync: bool = True
    trust: float = 0.0


class Cursor(Protocol):
    """The subset of LMDB's cursor interface used by umbel."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def set_range(self, key: bytes) -> bool:
        """Move to the first entry at or after a key."""

    def next(self) -> bool:
        """Move to the next entry."""

    def prev(self) -> bool:
        """Move to the previous entry."""

    def first(self) -> bool: ...
    def last(self) -> bool: ...
    def key(self) -> bytes: ...
    def value(self) -> bytes: ...
    def delete(self) -> bool: ...

    def pop(self, key: bytes) -> bytes | None:
        """Delete a key; return its value."""

    def replace(self, key: bytes, value: bytes) -> bytes | None: ...

    def putmulti(self, items: Iterable[tuple[bytes, bytes]]) -> tuple[int, int]:
        """Set many keys; return the number of items and the number of new keys."""

    def iternext(self, keys: bool = True, values: bool = True) -> Iterator[Any]:
        """Yield the entries from the cursor's position forwards."""

    def iterprev(self, keys: bool = True, values: bool = True) -> Iterator[Any]:
        """Yield the entries from the cursor's position backwards."""


class Tx(Protocol):
    """The subset of LMDB's transaction interface used by umbel."""

    def cursor(self) -> Cursor:
        """Return a cursor over all entries."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes) -> bool: ...
    def delete(self, key: bytes) -> bool: ...


class Environment:
    """One LMDB environment, opened on first use and read-only until the first write."""

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
        self._was_there = False
        self.is_due: Callable[[], bool] = lambda: False
        """Called if the files are missing; returns True if they should exist."""

    def reading(self) -> Reading:
        """Open a read transaction for a `with` block; None if nothing was written yet."""
        return Reading(self)

    def begin_reading(self) -> lmdb.Transaction | None:
        """Begin a read transaction, ended by `end_reading`; None if nothing was written yet."""
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
        """Return umbel's error for an LMDB error."""
        return _explanation(self._path, problem)

    @contextmanager
    def writing(self) -> Iterator[Tx]:
        """Open the write transaction; wait while another process or thread has it open."""
        if self._writer == threading.get_ident():
            raise InvalidValue("this thread has a transaction open on the shard; one has to end before the next begins")
        with self._idle:
            env = self._opened_for_writing()
            env.reader_check()  # slots of readers that died would retain old pages for good
            self._open += 1
        with self._counted(), _explained(self._path), env.begin(write=True) as transaction:
            self._writer = threading.get_ident()
            try:
                yield cast("Tx", transaction)
            finally:
                self._writer = None
        with self._idle:
            self._fill(env)

    def _fill(self, env: lmdb.Environment) -> None:
        """Extend the file to its last page, which LMDB may not write, to detect truncation."""
        if self._env is env and self._is_cut(env):
            os.truncate(self._file, (env.info()["last_pgno"] + 1) * env.stat()["psize"])

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Decrement the count of open transactions when the block ends."""
        try:
            yield
        finally:
            self._uncount()

    def _uncount(self) -> None:
        with self._idle:
            self._open -= 1
            self._idle.notify_all()

    def exists(self) -> bool:
        """Return True if anything was ever written."""
        return _inode(self._file) > 0

    def entries(self) -> int:
        """Return the number of entries, including undo entries and stamps."""
        with self._idle:
            env = self._opened_for_reading()
            return int(env.stat()["entries"]) - 1 if env is not None else 0  # without the fence entry

    def size_on_disk(self) -> int:
        """Return the disk space of the file in bytes."""
        return (self._path / "data.mdb").stat().st_blocks * 512 if self.exists() else 0

    def close(self) -> None:
        """Close the environment; it opens again on the next use."""
        with self._idle:
            self._close()

    def inherited(self) -> None:
        """Release the parent's environment in a forked child.

        With a transaction open it is only marked as lost: ending the child's copy of the transaction would end the parent's as
        well.
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
        """Close the environment if its files were removed or recreated since it was opened."""
        if self._is_lost:
            raise Terminal(
                f"this process was forked while {self._path} was in use",
                hint="fork when no snapshot or transaction is open, or start workers by spawning",
            )
        self._seen_at = monotonic()
        if self._env is not None and not self._open and self._inode != _inode(self._file):
            self._close()
        if self._env is not None and self._is_cut(self._env):
            raise self._cut()

    def _opened_for_reading(self) -> lmdb.Environment | None:
        if self._env is None or self._is_lost or monotonic() - self._seen_at >= self._options.trust:
            self._check()
        if self._env is None:
            self._check_there()
            if self.exists():
                self._env = self._open_env(writable=False)
        return self._env

    def _check_there(self) -> None:
        if not self.exists() and (self._was_there or self.is_due()):
            raise Damaged(f"{_named(self._path)} is missing", hint=REMEDY)

    def _is_cut(self, env: lmdb.Environment) -> bool:
        """Return True if the file is truncated; reading a missing page would kill the process."""
        return 0 < _size(self._file) < (env.info()["last_pgno"] + 1) * env.stat()["psize"]

    def _opened_for_writing(self) -> lmdb.Environment:
        self._check()
        if self._env is not None and self._writable:
            return self._env
        self._check_there()
        if not self._idle.wait_for(lambda: self._open == 0, _PATIENCE):
            raise Transient(f"{self._path} is being read in this process and cannot be opened for writing")
        self._close()
        self.create()
        self._env, self._writable = self._open_env(writable=True), True
        return self._env

    def create(self) -> None:
        """Create the files under a temporary name: a reader finds all of them or none."""
        if self.exists():
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f".{self._path.name}-{os.getpid()}-{threading.get_ident()}")
        with _explained(self._path):
            made = lmdb.open(str(draft), map_size=1 << 20, max_readers=_READERS)
            with made.begin(write=True) as transaction:
                fence(cast("Tx", transaction))
            os.truncate(draft / "data.mdb", (made.info()["last_pgno"] + 1) * made.stat()["psize"])
            made.close()
        with suppress(OSError):
            draft.rename(self._path)
        shutil.rmtree(draft, ignore_errors=True)
        sync_directory(self._path.parent)

    def _open_env(self, *, writable: bool) -> lmdb.Environment:
        self._inode = _inode(self._file)
        with _explained(self._path):
            env = lmdb.open(
                str(self._path),
                map_size=self._options.map_size,
                readonly=not writable,
                sync=self._options.sync,
                create=writable,
                max_readers=_READERS,
            )
        self._was_there = True
        if self._is_cut(env):
            env.close()
            raise self._cut()
        return env

    def _cut(self) -> Damaged:
        return Damaged(f"{_named(self._path)}/data.mdb was cut", hint=REMEDY)


class Reading:
    """A read transaction as a context manager, a class for low cost per query."""

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


_BROKEN = (
    *(lmdb.CorruptedError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PanicError, lmdb.PageNotFoundError),
    *(lmdb.IncompatibleError, lmdb.PageFullError, lmdb.CursorFullError),
)
_LOCK = threading.Lock()
_OPEN: dict[Path, Environment] = {}


def acquire(path: Path, options: Options) -> Environment:
    """Return the environment at `path`, shared by all callers in this process."""
    position = path.resolve()
    with _LOCK:
        found = _OPEN.get(position)
        if found is None:
            found = _OPEN[position] = Environment(position, options)
        found.users += 1
        return found


def release(environment: Environment) -> None:
    """Release an environment; the last release closes it."""
    with _LOCK:
        environment.users -= 1
        if environment.users <= 0:
            environment.close()
            for position in [position for position, each in _OPEN.items() if each is environment]:
                del _OPEN[position]


def _after_fork() -> None:
    global _LOCK  # noqa: PLW0603 - the parent's lock may be locked by a thread that does not exist here
    _LOCK = threading.Lock()
    for environment in _OPEN.values():
        environment.inherited()


os.register_at_fork(after_in_child=_after_fork)


def sync_directory(directory: Path) -> None:
    """Fsync a directory, so that the names of its files are on disk."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _inode(file: str) -> int:
    """Return the inode of the file at this path; 0 if there is none."""
    try:
        return os.stat(file).st_ino  # noqa: PTH116 - once per snapshot, and twice as fast as Path.stat
    except FileNotFoundError:
        return 0


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size  # noqa: PTH116 - see `_inode`
    except FileNotFoundError:
        return 0


def _named(path: Path) -> str:
    """Return a shard's name in error messages: its path below the store's folder."""
    return f"the state {path.parent.name}/{path.name}"


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Translate LMDB errors into umbel's errors."""
    try:
        yield
    except lmdb.Error as problem:
        raise _explanation(path, problem) from problem


def _explanation(path: Path, problem: lmdb.Error) -> UmbelError:
    """Return umbel's error for an LMDB error."""
    if isinstance(problem, lmdb.MapFullError):
        return Terminal(
            f"shard {path} is full", hint="open the store with a larger map_size: lmdb:///path?map_size=<bytes>"
        )
    if isinstance(problem, lmdb.BadValsizeError | lmdb.BadTxnError | lmdb.InvalidParameterError):
        return InvalidValue(f"shard {path}: {problem}")
    if isinstance(problem, _BROKEN):
        return Damaged(f"{_named(path)} is damaged: {problem}", hint=REMEDY)
    return Transient(f"shard {path}: {problem}")
