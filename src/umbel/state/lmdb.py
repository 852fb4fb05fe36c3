"""The embedded store: one LMDB environment per shard, in `<directory>/shard-000`.

Any number of processes read without locks while one writes; a commit is on disk when it returns. Not for network file
systems.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from umbel.errors import Damaged, InvalidValue, did_you_mean
from umbel.state.environments import REMEDY, Options, acquire, release, sync_directory
from umbel.state.failpoints import reach
from umbel.state.lmdb_checks import check_all
from umbel.state.lmdb_transaction import (
    LmdbReader,
    LmdbWriter,
    NothingThere,
    forget,
    progress_of,
    rewind,
    state_ids,
    write_stamps,
)
from umbel.state.port import OldState, Reader, ShardSize, Stamp, Transaction, check_shard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from urllib.parse import SplitResult

    from umbel.state.environments import Environment, Reading

_FORMAT = 3
"""Format 1, of umbel 0.1, has the columns of rows in declaration order (see `umbel.state.rows`) and no checksums.

Format 2 has another name for the tables of versions, and entries of tiles without a mark of retracted effects."""

_TRUST = 0.02
SETTINGS = frozenset({"map_size", "sync"})


class LmdbStore:
    """Keyed state in files of this machine.

    Args:
        directory: the folder of the shards; created on the first write.
        shards: number of shards; must equal the number the directory was created with.
        options: options for opening the files.
    """

    def __init__(self, directory: str | Path, shards: int, options: Options | None = None) -> None:
        self.shards = shards
        self._directory = Path(directory).resolve()
        self._options = options or Options()
        self._description = self._directory / "store.json"
        self._made, self._refusal = False, ""
        self._identity: str | None = None
        self._check_made_for()
        positions = [self._directory / f"shard-{shard:03d}" for shard in range(shards)]
        self._environments = [acquire(position, self._options) for position in positions]
        for environment in self._environments:
            environment.is_due = self._is_made

    @property
    def identity(self) -> str | None:
        """The store's unique id, None until something is written."""
        self._check_made_for()
        return self._identity

    def must_be(self, identity: str) -> None:
        """Refuse to read or write unless the store has this identity."""
        if not self._description.exists():
            self._refusal = f"the state is missing: there is no {self._directory.name}/{self._description.name}"
        elif self.identity != identity:
            self._refusal = f"the state in {self._directory.name} is not the one that the catalog tells of"

    def check(self, shard: int) -> int:
        """Verify every entry in a shard; return the number of entries.

        Raises:
            Damaged: an entry is missing or differs from the written one.
        """
        with self._environment(shard).reading() as tx:
            return 0 if tx is None else check_all(tx)

    @contextmanager
    def transaction(
        self, shard: int, state_ids: Sequence[str], stamp: Stamp, *, undo: bool = True
    ) -> Iterator[Transaction]:
        """Open the one write transaction of `shard`; see `umbel.state.port.Store`."""
        environment = self._environment(shard)
        if not self._made:
            self._make()
        with environment.writing() as tx:
            reach("begun")
            before = {state_id: rewind(tx, state_id, stamp) for state_id in state_ids}
            reach("undone")
            yield LmdbWriter(tx, state_ids, stamp.step if undo else None)
            write_stamps(tx, before, stamp, undo)
            reach("committing")
        reach("committed")

    def snapshot(self, shard: int) -> Snapshot:
        """Open a read view of the committed state."""
        return Snapshot(self._environment(shard).reading())

    def stamp(self, shard: int, state_id: str) -> Stamp | None:
        """Return the stamp of the last committed write of `state_id`."""
        with self._environment(shard).reading() as tx:
            found = progress_of(tx, state_id) if tx is not None else None
        return found.stamp if found else None

    def drop(self, state_id: str) -> None:
        """Delete all state of `state_id` in all shards."""
        for environment in self._environments:
            if environment.exists():
                with environment.writing() as tx:
                    forget(tx, state_id)

    def state_ids(self, shard: int) -> list[str]:
        """Return the state ids with state in `shard`, sorted."""
        with self._environment(shard).reading() as tx:
            return [] if tx is None else state_ids(tx)

    def sizes(self) -> list[ShardSize]:
        """Return the number of entries of each shard and its size on disk in bytes."""
        return [ShardSize(n, each.entries(), each.size_on_disk()) for n, each in enumerate(self._environments)]

    def close(self) -> None:
        """Release the files; those not used elsewhere in this process are closed."""
        while self._environments:
            release(self._environments.pop())

    def _environment(self, shard: int) -> Environment:
        check_shard(shard, self.shards)
        if self._refusal:
            raise Damaged(self._refusal, hint=REMEDY)
        return self._environments[shard]

    def _make(self) -> None:
        """Create all shards, then the file that records their number, once.

        From then on each shard must exist.
        """
        self._check_made_for()
        if not self._made:
            self._directory.mkdir(parents=True, exist_ok=True)
            for environment in self._environments:
                environment.create()
            draft = self._directory / f".store-{os.getpid()}-{threading.get_ident()}.json"
            draft.write_text(json.dumps({"format": _FORMAT, "shards": self.shards, "identity": uuid4().hex}))
            _sync(draft)
            draft.rename(self._description)
            sync_directory(self._directory)
            self._check_made_for()

    def _is_made(self) -> bool:
        """Return True if every shard must exist."""
        if not self._made:
            self._check_made_for()
        return self._made

    def _check_made_for(self) -> None:
        if not self._description.exists():
            if self._made:
                raise Damaged(f"the state is missing: {self._directory.name}/{self._description.name}", hint=REMEDY)
            return
        try:
            found: Mapping[str, Any] = json.loads(self._description.read_bytes())
            form, shards = found["format"], found["shards"]
        except (ValueError, KeyError, TypeError):
            report = f"the state is damaged: {self._directory.name}/{self._description.name} cannot be read"
            raise Damaged(report, hint=REMEDY) from None
        if form != _FORMAT:
            raise OldState.found(f"format {form}", f"format {_FORMAT}", f"the store in {self._directory}")
        if shards != self.shards:
            raise InvalidValue(
                f"the store in {self._directory} has {shards} shards, not {self.shards}",
                hint="the number of shards is fixed when a deployment is made; use another directory to change it",
            )
        self._made, self._identity = True, found.get("identity")


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


class Snapshot:
    """A read view as a context manager.

    Args:
        reading: its read transaction.
    """

    __slots__ = ("_reading",)

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def __enter__(self) -> Reader:
        tx = self._reading.__enter__()
        return NothingThere() if tx is None else LmdbReader(tx)

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> None:
        self._reading.__exit__(kind, problem, trace)


def open_url(url: SplitResult, shards: int, settings: Mapping[str, str]) -> LmdbStore:
    """Open `lmdb:///directory?map_size=<bytes per shard>&sync=off`.

    Args:
        url: the parts of the URL.
        shards: number of shards.
        settings: the URL's query parameters.
    """
    path = f"{url.netloc}{url.path}"
    if not path:
        raise InvalidValue("lmdb:// needs a directory: lmdb:///path/of/the/store")
    for name in settings.keys() - SETTINGS:
        raise InvalidValue(f"lmdb://{path}: unknown setting '{name}'{did_you_mean(name, SETTINGS)}")
    size, sync = settings.get("map_size", str(Options().map_size)), settings.get("sync", "on")
    if not size.isdecimal() or not int(size):
        raise InvalidValue(f"lmdb://{path}: map_size must be a number of bytes, found '{size}'")
    if sync not in ("on", "off"):
        raise InvalidValue(f"lmdb://{path}: sync must be 'on' or 'off', found '{sync}'")
    _check_position(Path(path))
    return LmdbStore(path, shards, Options(int(size), sync == "on", _TRUST))


def _check_position(directory: Path) -> None:
    """Reject a path that is not a directory, or cannot be read or created."""
    position = directory.absolute()
    existing = next(each for each in (position, *position.parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.R_OK | os.X_OK | (0 if existing == position else os.W_OK)):
        why = "is not a directory" if not existing.is_dir() else "cannot be written"
        raise InvalidValue(f"the store cannot be in {position}: {existing} {why}", hint="choose another one: --store")
