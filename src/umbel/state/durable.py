"""The common part of the stores in files and in buckets."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from polars.exceptions import PanicException

from umbel.errors import Damaged, InvalidValue, Transient, UmbelError
from umbel.state.description import NAME, StoreDescription
from umbel.state.port import FileSizes, JournalEnd, ShardSize
from umbel.state.runs import rewriting
from umbel.state.runs.journal import FOLDER as JOURNAL
from umbel.state.runs.maintenance import Maintainer
from umbel.state.runs.manifest import FOLDER as MANIFESTS
from umbel.state.runs.run import REMEDY
from umbel.state.runs.shard import RUNS, Shard, ShardOptions
from umbel.state.sharded import ShardedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from umbel.state.runs.files import ShardFiles

ELSEWHERE = "if the worker has it elsewhere, name its store: --store, UMBEL_STORE"
NEW = "name a prefix or folder of its own for this one: --store, UMBEL_STORE; after `umbel rebuild --all`, repeat that"
CLAIMS = "claims"
"""The folder of the claims of workers, by their epochs; the last one counts."""
NOTED_FOR = 0.2
"""Seconds between two looks into the catalog for a store that is not made yet."""
_log = logging.getLogger("umbel.state")


class DurableStore(ShardedStore[Shard]):
    """Keyed state in files or objects.

    Args:
        files_at: returns the files of a folder of the store, those of the store itself for an empty name.
        shards: number of shards; must equal the number the store was created with.
        options: sizes of the parts of a shard.
    """

    def __init__(self, files_at: Callable[[str], ShardFiles], shards: int, options: ShardOptions | None = None) -> None:
        self._files = files_at("")
        self._description = StoreDescription(self._files, shards)
        self.refusal = ""
        """Why nothing is read or written; empty if it is."""
        self._remedy = REMEDY
        self._noted: Callable[[], str | None] | None = None
        self._noted_at = 0.0
        is_made = self._description.is_made
        folders = [f"shard-{shard:03d}" for shard in range(shards)]
        parts = [files_at(folder) for folder in folders]
        for each in parts:
            each.store = self._description
        super().__init__([Shard(each, options=options, is_made=is_made) for each in parts])
        self._maintainer = Maintainer()
        self._stopping = threading.Event()

    @property
    def identity(self) -> str | None:
        """The store's unique id, None until something is written."""
        return self._description.identity

    def must_be(self, identity: str) -> None:
        """Refuse to read or write unless the store has this identity."""
        if not self._description.exists:
            self._miss()
        elif self.identity != identity:
            self.refusal = f"the state in {self._files} is not the one that the catalog tells of"

    def may_be(self, identity: str, noted: Callable[[], str | None]) -> None:
        """Make a new store with an identity; refuse one that others have made.

        Args:
            identity: of the store once something is written.
            noted: returns the identity of the store that finished batches wrote, None before the first: without it, this is
                another place than theirs.
        """
        self._description.own, self._noted = identity, noted
        self._verify()

    def _verify(self) -> None:
        """Refuse a new store that another deployment has made, or this one elsewhere."""
        if self._noted is None:
            return
        if not self._description.is_made():
            self._verify_noted()
        elif self._description.is_foreign:
            self.refusal, self._remedy = f"the state in {self._files} is that of another deployment", NEW
        else:
            self._noted = None

    def _verify_noted(self) -> None:
        """Refuse a store that is missing here, but was written elsewhere.

        The catalog is read from time to time.
        """
        noted = self._noted  # another thread may find meanwhile that the store was made
        if noted is None or time.monotonic() < self._noted_at:
            return
        self._noted_at = time.monotonic() + NOTED_FOR
        if noted() is not None:
            self._miss()

    def _miss(self) -> None:
        self.refusal = f"the state is missing: there is no {self._files}/{NAME}"
        self._remedy = f"{ELSEWHERE}; if it is lost, {REMEDY}"

    def check_claim(self, known: Sequence[str]) -> None:
        """Refuse a store that another worker has claimed last.

        Args:
            known: the claims of workers of this deployment.

        Raises:
            Damaged: one of another deployment has, or it is not the store of this one.
        """
        self._check()
        claims = self._files.list(CLAIMS)
        if claims and self._files.read(f"{CLAIMS}/{claims[-1]}").decode() not in known:
            self._lose()

    def claim(self, epoch: int, claim: str) -> None:
        """Claim the store for a worker, after `check_claim`.

        Args:
            epoch: of the worker, later than those before.
            claim: unique among all workers of all deployments.

        Raises:
            Damaged: one of another deployment has claimed it meanwhile.
        """
        before, name = self._files.list(CLAIMS), f"{epoch:012d}"
        if (before and before[-1] >= name) or not self._files.put_new(f"{CLAIMS}/{name}", claim.encode()):
            self._lose()
        with suppress(Transient):  # the next claim deletes them
            for each in before[:-1]:
                self._files.delete(f"{CLAIMS}/{each}")

    def _lose(self) -> None:
        self.refusal = f"the state in {self._files} was taken over by a worker of another folder, a copy of this one"
        self._remedy = NEW
        self._check()

    def end(self, shard: int) -> JournalEnd:
        """Return the end of a shard as this process last read or wrote it."""
        return self._shards[shard].end

    def must_reach(self, ends: Callable[[], Sequence[JournalEnd]]) -> None:
        """Refuse to read or write shards that end before."""
        for number, (shard, end) in enumerate(zip(self._shards, ends(), strict=False)):
            shard.least, shard.noted = end, partial(_one_of, ends, number)

    def check(self, shard: int) -> int:
        """Verify all files of a shard; return the number of rows.

        Raises:
            Damaged: a file is missing, or differs from its checksums.
        """
        return self._shard(shard).check()

    def sizes(self) -> list[ShardSize]:
        """Return the rows of each shard, its bytes on disk, and the parts of these."""
        return [_size(number, shard) for number, shard in enumerate(self._every())]

    @property
    def root(self) -> ShardFiles:
        """The files of the store itself, above those of its shards."""
        return self._files

    def files(self) -> list[ShardFiles]:
        """Return the files of each shard."""
        return [shard.files for shard in self._shards]

    def drop(self, state_id: str) -> None:
        """Delete all state of `state_id` in all shards."""
        shards = self._every()
        if self._description.is_made():
            for shard in shards:
                shard.drop(state_id)

    def clear(self) -> None:
        """Delete the files of all shards, undamaged or not; the description stays.

        Nobody may read or write the store.
        """
        for shard in self._shards:
            for folder in (MANIFESTS, JOURNAL, RUNS):  # without manifests what is left is not taken for state
                for name in shard.files.list(folder):
                    shard.files.delete(f"{folder}/{name}")

    def forget(self) -> None:
        """Delete the description: the store is as if it had never been made."""
        for name in self._files.list(CLAIMS):
            self._files.delete(f"{CLAIMS}/{name}")
        self._files.delete(NAME)

    def last_pending(self) -> int | None:
        """Return the last batch whose writes can still be replaced, None for none."""
        found = [rewriting.last_pending(shard) for shard in self._every()] if self._description.is_made() else []
        return max((batch for batch in found if batch is not None), default=None)

    def rewrite_without(self, shard: int, keys: Mapping[str, pl.Series]) -> int:
        """Rewrite a shard without the rows of some keys; see `umbel.state.runs.rewriting`."""
        written = self._shard(shard)
        return rewriting.rewrite_without(written, keys) if self._description.is_made() else 0

    def follow(self, every: float) -> None:
        """Look for new state in a thread from now on; snapshots show the last one.

        Args:
            every: seconds between two looks; snapshots are about so old.
        """
        for shard in self._every():
            shard.is_followed = True
            thread = threading.Thread(target=self._follow, args=(shard, every), name="state-follower", daemon=True)
            thread.start()

    def _follow(self, shard: Shard, every: float) -> None:
        is_well = True
        while not self._stopping.wait(every):
            try:
                shard.refresh()
                is_well = True
            except (Exception, PanicException) as error:  # noqa: BLE001 - snapshots are as of the last look that succeeded
                if is_well:
                    _log.warning("state cannot be followed: %s", error, exc_info=not isinstance(error, UmbelError))
                is_well = False

    def close(self) -> None:
        """Finish the maintenance at hand, and release the files."""
        self._stopping.set()
        self._maintainer.close()

    def _shard(self, shard: int) -> Shard:
        found = super()._shard(shard)
        self._check()
        return found

    def _check(self) -> None:
        self._verify()
        if self.refusal:
            raise Damaged(self.refusal, hint=self._remedy)

    def _prepare(self) -> None:
        self._description.make(self._create)
        self._shard(0)  # another deployment may have made it meanwhile

    def _finish(self, written: Shard) -> None:
        self._maintainer.after(written)

    def _create(self) -> None:
        self._files.check_puts()
        for shard in self._shards:
            shard.create()


def _one_of(ends: Callable[[], Sequence[JournalEnd]], shard: int) -> JournalEnd:
    found = ends()
    return found[shard] if shard < len(found) else JournalEnd()


def _size(number: int, shard: Shard) -> ShardSize:
    view, journal = shard.refresh(), shard.journal.size()
    runs = [run for entries in view.manifest.runs.values() for run in entries]
    tiers, size = Counter(run.tier for run in runs), sum(run.size for run in runs)
    files = FileSizes(journal, view.memtable.size, tiers, size, view.manifest.written)
    return ShardSize(number, view.rows(), journal + size, files)


def flush_bytes(url: str, settings: Mapping[str, str]) -> int:
    """Return the setting `flush_bytes` of a store's URL.

    Raises:
        InvalidValue: it is not a positive number.
    """
    return positive(url, settings, "flush_bytes", ShardOptions().flush_bytes)


def positive(url: str, settings: Mapping[str, str], name: str, default: int) -> int:
    """Return a setting of a store's URL that is a number of bytes.

    Raises:
        InvalidValue: it is not a positive number.
    """
    text = settings.get(name, str(default))
    if not (text.isascii() and text.isdecimal()) or not int(text):
        raise InvalidValue(f"{url}: {name} must be a number of bytes, found '{text}'")
    return int(text)
