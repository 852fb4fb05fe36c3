"""Erasure: delete rows by key, and refuse them on later ingestion.

Only digests of erased keys are retained, so that a key can be recognised when it comes again and is stored nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from umbel.query.rows import Fields
from umbel.query.session import LookupSource
from umbel.state.keys import encode_columns
from umbel.state.runs.addresses import hash_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from umbel.query.point_lookup import PointLookup
    from umbel.query.rows import Column, Instants
    from umbel.state.snapshots import Snapshots

_DIGEST_BYTES = 16
_MAGIC = b"umbel-erased-keys-1\n"


@dataclass(frozen=True)
class ErasedKeys:
    """The digests of erased keys, by the 64-bit hash of the encoded key.

    Args:
        columns: the columns of the keys, sorted by name.
        digests: of each key, with its hash.
    """

    columns: tuple[str, ...]
    digests: frozenset[tuple[int, bytes]]

    @classmethod
    def of(cls, keys: pl.DataFrame) -> ErasedKeys:
        """Return the digests of keys, without keys that have a null."""
        columns = tuple(sorted(keys.columns))
        encoded = encode_columns(keys.drop_nulls(), columns).unique()
        return cls(columns, frozenset(zip(hash_keys(encoded).tolist(), map(_digest, encoded.to_list()), strict=True)))

    @classmethod
    def unpack(cls, data: bytes) -> ErasedKeys | None:
        """Return the digests of their bytes, None if these are something else."""
        if not data.startswith(_MAGIC):
            return None
        found = json.loads(data[len(_MAGIC) :])
        digests = frozenset((number, bytes.fromhex(digest)) for number, digest in found["digests"])
        return cls(tuple(found["columns"]), digests)

    def pack(self) -> bytes:
        """Return the digests as bytes."""
        digests = [[number, digest.hex()] for number, digest in sorted(self.digests)]
        return _MAGIC + json.dumps({"columns": self.columns, "digests": digests}, separators=(",", ":")).encode()

    def __or__(self, other: ErasedKeys) -> ErasedKeys:
        return ErasedKeys(self.columns, self.digests | other.digests)

    def __and__(self, other: ErasedKeys) -> ErasedKeys:
        return ErasedKeys(self.columns, self.digests & other.digests)

    def hits(self, rows: pl.DataFrame) -> pl.Series:
        """Return a mask of the rows with erased keys."""
        return self.among(encode_columns(rows, self.columns))

    def among(self, encoded: pl.Series) -> pl.Series:
        """Return a mask of the erased ones among encoded keys."""
        found = np.zeros(len(encoded), np.bool_)
        hashes = hash_keys(encoded)
        for row in np.flatnonzero(np.isin(hashes, self._hashes)).tolist():
            found[row] = (int(hashes[row]), _digest(encoded[row])) in self.digests
        return pl.Series("_erased", found)

    @cached_property
    def _hashes(self) -> NDArray[np.uint64]:
        return np.array(sorted({number for number, _ in self.digests}), np.uint64)


def _digest(encoded: bytes) -> bytes:
    return blake2b(encoded, digest_size=_DIGEST_BYTES).digest()


class Erased:
    """The erased keys per dataset."""

    def __init__(self, keys: Mapping[str, ErasedKeys] | None = None) -> None:
        self._keys = dict(keys or {})

    def __bool__(self) -> bool:
        return bool(self._keys)

    def keys(self, dataset: str) -> ErasedKeys | None:
        """Return a dataset's erased keys, None if there are none."""
        return self._keys.get(dataset)

    def copy(self) -> Erased:
        """Return a copy of the record."""
        return Erased(self._keys)

    def only(self, datasets: Iterable[str]) -> Erased:
        """Return the record restricted to some datasets."""
        return Erased({name: self._keys[name] for name in datasets if name in self._keys})

    def add(self, dataset: str, keys: pl.DataFrame) -> None:
        """Erase the rows equal to `keys` in these columns."""
        self.merge(dataset, ErasedKeys.of(keys))

    def merge(self, dataset: str, keys: ErasedKeys) -> None:
        """Erase the rows with these keys."""
        known = self._keys.get(dataset)
        self._keys[dataset] = keys if known is None else known | keys

    def without(self, dataset: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a dataset that are not erased."""
        return rows.filter(~self.hits(dataset, rows)) if dataset in self._keys else rows

    def hits(self, dataset: str, rows: pl.DataFrame) -> pl.Series:
        """Return a mask of erased rows."""
        keys = self._keys.get(dataset)
        if keys is None or rows.is_empty():
            return pl.Series([False], dtype=pl.Boolean).new_from_index(0, rows.height)
        return keys.hits(rows)


class Erasing:
    """A lookup source that hides erased rows of another source.

    Args:
        source: the other source.
        erased: the erased keys.
    """

    def __init__(self, source: LookupSource, erased: Erased) -> None:
        self._source, self._erased = source, erased

    def online(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of the keys from the live state."""
        return self._masked(dataset, keys, *self._source.online(dataset, keys, at, fields))

    def offline(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the rows of the keys as of any instant, from the history."""
        return self._masked(dataset, keys, *self._source.offline(dataset, keys, at, fields))

    def point_lookup(
        self,
        dataset: str,
        keys: Mapping[str, Column],
        at: Instants,
        fields: Fields = None,
        snapshots: Snapshots | None = None,
    ) -> PointLookup | None:
        """Return a point lookup, None if unsupported or if keys were erased."""
        if self._erased.keys(dataset) is not None:
            return None
        return self._source.point_lookup(dataset, keys, at, fields, snapshots)

    def _masked(
        self, dataset: str, keys: pl.DataFrame, rows: pl.DataFrame, found: pl.Series
    ) -> tuple[pl.DataFrame, pl.Series]:
        erased = self._erased.hits(dataset, keys)
        if not erased.any():
            return rows, found
        others = [name for name in rows.columns if name not in keys.columns]
        return rows.with_columns(pl.when(~erased).then(pl.col(name)).alias(name) for name in others), found & ~erased
