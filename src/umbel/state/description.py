"""The description of a store in files: format, number of shards and identity."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from umbel.errors import Damaged, InvalidValue
from umbel.state.disk import make_folder, sync_directory, sync_file
from umbel.state.port import OldState
from umbel.state.runs.run import REMEDY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

NAME = "store.json"
FORMAT = 5
"""Formats 1 to 3 were LMDB databases; 4 is journals and runs."""


class StoreDescription:
    """The file that describes a store; once it exists, every shard must exist.

    Args:
        directory: the folder of the store.
        shards: number of shards; must equal the one the store was made with.
    """

    def __init__(self, directory: Path, shards: int) -> None:
        self._directory, self._shards = directory, shards
        self._path = directory / NAME
        self._is_made = False
        self._identity: str | None = None
        self._read()

    @property
    def identity(self) -> str | None:
        """The store's unique id, None until something is written."""
        self._read()
        return self._identity

    @property
    def exists(self) -> bool:
        """True if the file is there."""
        return self._path.exists()

    def is_made(self) -> bool:
        """Return True if every shard must exist."""
        if not self._is_made:
            self._read()
        return self._is_made

    def make(self, create: Callable[[], None]) -> None:
        """Write the file unless it is there, after the shards have been created.

        Args:
            create: creates the shards that do not exist.
        """
        if self.is_made():
            return
        make_folder(self._directory)
        create()
        draft = self._directory / f".store-{os.getpid()}-{threading.get_ident()}.json"
        draft.write_text(json.dumps({"format": FORMAT, "shards": self._shards, "identity": uuid4().hex}))
        sync_file(draft)
        draft.rename(self._path)
        sync_directory(self._directory)
        self._read()

    def _read(self) -> None:
        if not self._path.exists():
            if self._is_made:
                raise Damaged(f"the state is missing: {self._directory.name}/{NAME}", hint=REMEDY)
            return
        try:
            found: Mapping[str, Any] = json.loads(self._path.read_bytes())
            form, shards = found["format"], found["shards"]
        except (ValueError, KeyError, TypeError):
            report = f"the state is damaged: {self._directory.name}/{NAME} cannot be read"
            raise Damaged(report, hint=REMEDY) from None
        if form != FORMAT:
            raise OldState.found(f"format {form}", f"format {FORMAT}", f"the store in {self._directory}")
        if shards != self._shards:
            raise InvalidValue(
                f"the store in {self._directory} has {shards} shards, not {self._shards}",
                hint="the number of shards is fixed when a deployment is made; use another directory to change it",
            )
        self._is_made, self._identity = True, found.get("identity")
