"""The description of a store in files: format, number of shards and identity."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from umbel.errors import Damaged, InvalidValue
from umbel.state.port import OldState
from umbel.state.runs.run import REMEDY
from umbel.state.stored_json import parse_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from umbel.state.runs.files import ShardFiles

NAME = "store.json"
FORMAT = 5
"""Formats 1 to 3 were LMDB databases; 4 is journals and runs."""


class StoreDescription:
    """The file that describes a store; once it exists, every shard must exist.

    Args:
        files: of the store, above those of its shards.
        shards: number of shards; must equal the one the store was made with.
    """

    def __init__(self, files: ShardFiles, shards: int) -> None:
        self._files, self._shards = files, shards
        self._is_made = False
        self._identity: str | None = None
        self.own: str | None = None
        """The identity of a store that is made here, None for any."""
        self._making = threading.Lock()
        with suppress(Damaged):  # whoever needs it is told; what is left of the store can be deleted without it
            self._read()

    @property
    def identity(self) -> str | None:
        """The store's unique id, None until something is written."""
        self._read()
        return self._identity

    def known(self) -> str | None:
        """Return the identity as last read, without reading it."""
        return self._identity

    @property
    def exists(self) -> bool:
        """True if the file is there."""
        return self._files.size(NAME) is not None

    def is_made(self) -> bool:
        """Return True if every shard must exist."""
        if not self._is_made:
            self._read()
        return self._is_made

    @property
    def is_foreign(self) -> bool:
        """True if the store there is not the one that may be made here."""
        return self._is_made and self._identity != self.own

    def make(self, create: Callable[[], None]) -> None:
        """Write the file unless it is there, after the shards have been created.

        Args:
            create: creates the shards that do not exist.
        """
        if self.is_made():
            return
        with self._making:  # several threads write the first batch
            if self.is_made():
                return
            create()
            text = json.dumps({"format": FORMAT, "shards": self._shards, "identity": self.own or uuid4().hex})
            self._files.put_new(NAME, text.encode())
            self._read()

    @staticmethod
    def write(files: ShardFiles, shards: int, identity: str) -> None:
        """Write the file of a store that has lost it.

        Args:
            files: of the store, above those of its shards.
            shards: number of shards.
            identity: of the store, as the catalog knows it.
        """
        files.delete(NAME)
        files.put_new(NAME, json.dumps({"format": FORMAT, "shards": shards, "identity": identity}).encode())

    def _read(self) -> None:
        was_made = self._is_made  # another thread may make it meanwhile
        try:
            text = self._files.read(NAME)
        except FileNotFoundError:
            if was_made:
                raise Damaged(f"the state is missing: {self._files}/{NAME}", hint=REMEDY) from None
            return
        try:
            found: Mapping[str, Any] = parse_stored(text)
            form, shards = found["format"], found["shards"]
        except (ValueError, KeyError, TypeError):
            report = f"the state is damaged: {self._files}/{NAME} cannot be read"
            raise Damaged(report, hint=REMEDY) from None
        if form != FORMAT:
            raise OldState.found(f"format {form}", f"format {FORMAT}", f"the store in {self._files}")
        if shards != self._shards:
            raise InvalidValue(
                f"the store in {self._files} has {shards} shards, not {self._shards}",
                hint="the number of shards is fixed when a deployment is made; use another directory to change it",
            )
        self._is_made, self._identity = True, found.get("identity")
