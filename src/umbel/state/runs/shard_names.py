"""Names of shards and their stores, by which misplaced files are recognised."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from umbel.state.runs.files import ShardFiles

MARK_BYTES = 16
FOREIGN = "it is of another store: of another deployment, or from before `umbel rebuild --all`"
_SHARD = re.compile(r"shard-\d+")


class StoreIdentity(Protocol):
    """The identity of the store of a shard."""

    @property
    def identity(self) -> str | None:
        """The identity as it is now, None if it is unknown."""
        ...

    def known(self) -> str | None:
        """Return the identity as last read, without reading it."""
        ...


@dataclass(frozen=True, slots=True)
class KnownStore:
    """A store whose identity does not change.

    Args:
        identity: of the store, None for a shard outside of stores, which reads files of any.
    """

    identity: str | None = None

    def known(self) -> str | None:
        return self.identity


def shard_name(files: ShardFiles) -> str:
    """Return the name of a shard, the same wherever its store is.

    It is empty for a shard outside of stores.
    """
    name = str(files).rpartition("/")[2]
    return name if _SHARD.fullmatch(name) else ""


@lru_cache(maxsize=16)
def store_mark(identity: str) -> bytes:
    """Return the mark of a store in files of its shards, never empty.

    Args:
        identity: of the store.
    """
    return blake2b(identity.encode(), digest_size=MARK_BYTES).digest()


def known_mark(store: StoreIdentity) -> bytes:
    """Return the mark of a store whose identity is known, empty while it is unknown."""
    identity = store.known()
    return store_mark(identity) if identity else b""


def is_foreign(store: StoreIdentity, mark: bytes) -> bool:
    """Return True if a mark is not that of a store.

    The store may have been made anew since its identity was read.
    """
    known = store.known()
    if not mark or known is None or store_mark(known) == mark:
        return False
    now = store.identity
    return now is not None and store_mark(now) != mark
