"""The store in files of this machine: each shard's journal and runs in `<directory>/shard-000`.

Any number of processes read without locks while one writes; a commit is on disk when it returns. Not for network file
systems.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from umbel.errors import Damaged, InvalidValue, did_you_mean
from umbel.state.description import NAME, StoreDescription
from umbel.state.port import MAX_STATE_ID, ShardSize, Stamp, check_name, check_shard
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.maintenance import Maintainer
from umbel.state.runs.run import REMEDY
from umbel.state.runs.shard import Shard, ShardOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from urllib.parse import SplitResult

    from umbel.state.runs.views import ShardSnapshot, ShardTransaction

SETTINGS = frozenset({"flush_bytes", "sync"})


class FileStore:
    """Keyed state in files of this machine.

    Args:
        directory: the folder of the shards; created on the first write.
        shards: number of shards; must equal the number the directory was created with.
        options: sizes of the parts of a shard.
        is_synced: False leaves out all waiting for the disk, for tests.
    """

    def __init__(
        self, directory: str | Path, shards: int, options: ShardOptions | None = None, *, is_synced: bool = True
    ) -> None:
        self.shards = shards
        self._directory = Path(directory).resolve()
        self._description = StoreDescription(self._directory, shards)
        self._refusal = ""
        self._shards = [
            Shard(
                LocalFiles(self._directory / f"shard-{shard:03d}", is_synced=is_synced),
                options=options,
                is_made=self._description.is_made,
            )
            for shard in range(shards)
        ]
        self._maintainer = Maintainer()

    @property
    def identity(self) -> str | None:
        """The store's unique id, None until something is written."""
        return self._description.identity

    def must_be(self, identity: str) -> None:
        """Refuse to read or write unless the store has this identity."""
        if not self._description.exists:
            self._refusal = f"the state is missing: there is no {self._directory.name}/{NAME}"
        elif self.identity != identity:
            self._refusal = f"the state in {self._directory.name} is not the one that the catalog tells of"

    def check(self, shard: int) -> int:
        """Verify all files of a shard; return the number of rows.

        Raises:
            Damaged: a file is missing, or differs from its checksums.
        """
        return self._shard(shard).check()

    @contextmanager
    def transaction(
        self, shard: int, state_ids: Sequence[str], stamp: Stamp, *, undo: bool = True
    ) -> Iterator[ShardTransaction]:
        """Open the one write transaction of `shard`; see `umbel.state.port.Store`."""
        written = self._shard(shard)
        for state_id in state_ids:
            check_name("the operator id", state_id, MAX_STATE_ID)
        self._description.make(self._create)
        with written.transaction(state_ids, stamp, undo=undo) as transaction:
            yield transaction
        self._maintainer.after(written)

    @contextmanager
    def snapshot(self, shard: int) -> Iterator[ShardSnapshot]:
        """Open a read view of the committed state."""
        yield self._shard(shard).snapshot()

    def stamp(self, shard: int, state_id: str) -> Stamp | None:
        """Return the stamp of the last committed write of `state_id`."""
        return self._shard(shard).stamp(state_id)

    def drop(self, state_id: str) -> None:
        """Delete all state of `state_id` in all shards."""
        shards = [self._shard(number) for number in range(self.shards)]
        if self._description.is_made():
            for shard in shards:
                shard.drop(state_id)

    def state_ids(self, shard: int) -> list[str]:
        """Return the state ids with state in `shard`, sorted."""
        return self._shard(shard).state_ids()

    def sizes(self) -> list[ShardSize]:
        """Return the number of rows of each shard and its size on disk in bytes."""
        shards = [self._shard(number) for number in range(self.shards)]
        return [ShardSize(number, each.refresh().rows(), each.size()) for number, each in enumerate(shards)]

    def close(self) -> None:
        """Finish the maintenance at hand, and release the files."""
        self._maintainer.close()

    def _shard(self, shard: int) -> Shard:
        check_shard(shard, self.shards)
        if self._refusal:
            raise Damaged(self._refusal, hint=REMEDY)
        return self._shards[shard]

    def _create(self) -> None:
        for shard in self._shards:
            shard.create()


def open_url(url: SplitResult, shards: int, settings: Mapping[str, str]) -> FileStore:
    """Open `file:///directory?flush_bytes=<bytes>&sync=off`.

    Args:
        url: the parts of the URL.
        shards: number of shards.
        settings: the URL's query parameters.
    """
    path = f"{url.netloc}{url.path}"
    if not path:
        raise InvalidValue("file:// needs a directory: file:///path/of/the/store")
    for name in settings.keys() - SETTINGS:
        raise InvalidValue(f"file://{path}: unknown setting '{name}'{did_you_mean(name, SETTINGS)}")
    size, sync = settings.get("flush_bytes", str(ShardOptions().flush_bytes)), settings.get("sync", "on")
    if not size.isdecimal() or not int(size):
        raise InvalidValue(f"file://{path}: flush_bytes must be a number of bytes, found '{size}'")
    if sync not in ("on", "off"):
        raise InvalidValue(f"file://{path}: sync must be 'on' or 'off', found '{sync}'")
    _check_position(Path(path))
    return FileStore(path, shards, ShardOptions(flush_bytes=int(size)), is_synced=sync == "on")


def _check_position(directory: Path) -> None:
    """Reject a path that is not a directory, or cannot be read or created."""
    position = directory.absolute()
    existing = next(each for each in (position, *position.parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.R_OK | os.X_OK | (0 if existing == position else os.W_OK)):
        why = "is not a directory" if not existing.is_dir() else "cannot be written"
        raise InvalidValue(f"the store cannot be in {position}: {existing} {why}", hint="choose another one: --store")
