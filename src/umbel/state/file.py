"""The store in files of this machine: each shard's journal and runs in `<directory>/shard-000`.

Any number of processes read without locks while one writes; a commit is on disk when it returns. Not for network file
systems.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from umbel.errors import Damaged, InvalidValue, did_you_mean
from umbel.state.description import NAME, StoreDescription
from umbel.state.port import FileSizes, ShardSize
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.maintenance import Maintainer
from umbel.state.runs.run import REMEDY
from umbel.state.runs.shard import Shard, ShardOptions
from umbel.state.sharded import ShardedStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

SETTINGS = frozenset({"flush_bytes", "sync"})


class FileStore(ShardedStore[Shard]):
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
        self._directory = Path(directory).resolve()
        self._description = StoreDescription(self._directory, shards)
        self._refusal = ""
        super().__init__(
            [
                Shard(
                    LocalFiles(self._directory / f"shard-{shard:03d}", is_synced=is_synced),
                    options=options,
                    is_made=self._description.is_made,
                )
                for shard in range(shards)
            ]
        )
        self._maintainer = Maintainer()

    @property
    def directory(self) -> Path:
        """The folder of the shards."""
        return self._directory

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

    def sizes(self) -> list[ShardSize]:
        """Return the rows of each shard, its bytes on disk, and the parts of these."""
        return [_size(number, shard) for number, shard in enumerate(self._every())]

    def drop(self, state_id: str) -> None:
        """Delete all state of `state_id` in all shards."""
        shards = self._every()
        if self._description.is_made():
            for shard in shards:
                shard.drop(state_id)

    def close(self) -> None:
        """Finish the maintenance at hand, and release the files."""
        self._maintainer.close()

    def _shard(self, shard: int) -> Shard:
        found = super()._shard(shard)
        if self._refusal:
            raise Damaged(self._refusal, hint=REMEDY)
        return found

    def _prepare(self) -> None:
        self._description.make(self._create)

    def _finish(self, written: Shard) -> None:
        self._maintainer.after(written)

    def _create(self) -> None:
        for shard in self._shards:
            shard.create()


def _size(number: int, shard: Shard) -> ShardSize:
    view, journal = shard.refresh(), shard.journal.size()
    runs = [run for entries in view.manifest.runs.values() for run in entries]
    tiers, size = Counter(run.tier for run in runs), sum(run.size for run in runs)
    files = FileSizes(journal, view.memtable.size, tiers, size, view.manifest.written)
    return ShardSize(number, view.rows(), journal + size, files)


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
