"""The store in files of this machine: each shard's journal and runs in `<directory>/shard-000`.

Any number of processes read without locks while one writes; a commit is on disk when it returns.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from umbel.errors import InvalidValue, did_you_mean
from umbel.state.durable import DurableStore, flush_bytes
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.shard import ShardOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

SETTINGS = frozenset({"flush_bytes", "sync"})


class FileStore(DurableStore):
    """Keyed state in files of this machine, or of a folder that several machines share.

    Args:
        directory: the folder of the shards; created on the first write.
        shards: number of shards; must equal the number the directory was created with.
        options: sizes of the parts of a shard.
        is_synced: False leaves out all waiting for the disk, for tests.
    """

    def __init__(
        self, directory: str | Path, shards: int, options: ShardOptions | None = None, *, is_synced: bool = True
    ) -> None:
        self.directory = Path(directory).resolve()
        """The folder of the shards."""
        root = self.directory
        super().__init__(lambda folder: LocalFiles(root / folder, is_synced=is_synced), shards, options)


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
    size, sync = flush_bytes(f"file://{path}", settings), settings.get("sync", "on")
    if sync not in ("on", "off"):
        raise InvalidValue(f"file://{path}: sync must be 'on' or 'off', found '{sync}'")
    _check_position(Path(path))
    return FileStore(path, shards, ShardOptions(flush_bytes=size), is_synced=sync == "on")


def _check_position(directory: Path) -> None:
    """Reject a path that is not a directory, or cannot be read or created."""
    position = directory.absolute()
    existing = next(each for each in (position, *position.parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.R_OK | os.X_OK | (0 if existing == position else os.W_OK)):
        why = "is not a directory" if not existing.is_dir() else "cannot be written"
        raise InvalidValue(f"the store cannot be in {position}: {existing} {why}", hint="choose another one: --store")
