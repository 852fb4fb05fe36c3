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
from typing import TYPE_CHECKING

from umbel.errors import InvalidValue
from umbel.state.environments import Options, acquire, release, sync_directory
from umbel.state.failpoints import reach
from umbel.state.lmdb_transaction import (
    LmdbReader,
    LmdbWriter,
    NothingThere,
    forget,
    owners,
    progress_of,
    rewind,
    write_stamps,
)
from umbel.state.port import Reader, ShardSize, Stamp, Transaction, check_shard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from urllib.parse import SplitResult

    from umbel.state.environments import Environment, Reading

_FORMAT = 1
_TRUST = 0.02


class LmdbStore:
    """Keyed state in files of this machine.

    Args:
        directory: where the shards lie; made when it is first written to.
        shards: how many shards there are; must be what the directory was made with.
        options: how the files are opened.
    """

    def __init__(self, directory: str | Path, shards: int, options: Options | None = None) -> None:
        self.shards = shards
        self._directory = Path(directory).resolve()
        self._options = options or Options()
        self._description = self._directory / "store.json"
        self._made = False
        self._check_made_for()
        places = [self._directory / f"shard-{shard:03d}" for shard in range(shards)]
        self._environments = [acquire(place, self._options) for place in places]

    @contextmanager
    def transaction(
        self, shard: int, owners: Sequence[str], stamp: Stamp, *, undo: bool = True
    ) -> Iterator[Transaction]:
        """Open the one write transaction of `shard`; see `umbel.state.port.Store`."""
        environment = self._environment(shard)
        if not self._made:
            self._make()
        with environment.writing() as tx:
            reach("begun")
            before = {owner: rewind(tx, owner, stamp) for owner in owners}
            reach("undone")
            yield LmdbWriter(tx, owners, stamp.step if undo else None)
            write_stamps(tx, before, stamp, undo)
            reach("committing")
        reach("committed")

    def snapshot(self, shard: int) -> Snapshot:
        """Open a read view of what is committed."""
        return Snapshot(self._environment(shard).reading())

    def stamp(self, shard: int, owner: str) -> Stamp | None:
        """Return the stamp of the last committed write of `owner`."""
        with self._environment(shard).reading() as tx:
            found = progress_of(tx, owner) if tx is not None else None
        return found.stamp if found else None

    def drop(self, owner: str) -> None:
        """Forget everything of `owner` in all shards."""
        for environment in self._environments:
            if environment.exists():
                with environment.writing() as tx:
                    forget(tx, owner)

    def owners(self, shard: int) -> list[str]:
        """Return the operators that have state in `shard`, sorted."""
        with self._environment(shard).reading() as tx:
            return [] if tx is None else owners(tx)

    def sizes(self) -> list[ShardSize]:
        """Return how much each shard holds; size is what its file takes on disk."""
        return [ShardSize(n, each.entries(), each.size_on_disk()) for n, each in enumerate(self._environments)]

    def close(self) -> None:
        """Close the files nobody else in this process uses."""
        while self._environments:
            release(self._environments.pop())

    def _environment(self, shard: int) -> Environment:
        check_shard(shard, self.shards)
        return self._environments[shard]

    def _make(self) -> None:
        """Write down for how many shards the directory is made, once."""
        self._check_made_for()
        if not self._made:
            self._directory.mkdir(parents=True, exist_ok=True)
            draft = self._directory / f".store-{os.getpid()}-{threading.get_ident()}.json"
            draft.write_text(json.dumps({"format": _FORMAT, "shards": self.shards}))
            draft.rename(self._description)
            sync_directory(self._directory)
            self._made = True

    def _check_made_for(self) -> None:
        self._made = self._description.exists()
        if not self._made:
            return
        found: Mapping[str, int] = json.loads(self._description.read_text())
        if found["format"] != _FORMAT or found["shards"] != self.shards:
            raise InvalidValue(
                f"the store in {self._directory} has {found['shards']} shards (format {found['format']}), "
                f"not {self.shards} (format {_FORMAT})",
                hint="the number of shards is fixed when a deployment is made; use another directory to change it",
            )


class Snapshot:
    """A read view, opened and ended by a `with` block.

    Args:
        reading: the transaction it reads in.
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
        shards: how many shards there are.
        settings: what stands after the question mark.
    """
    path = f"{url.netloc}{url.path}"
    if not path:
        raise InvalidValue("lmdb:// needs a directory: lmdb:///path/of/the/store")
    defaults = Options()
    size = int(settings.get("map_size", defaults.map_size))
    return LmdbStore(path, shards, Options(size, settings.get("sync", "on") != "off", _TRUST))
