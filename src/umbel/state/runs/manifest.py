"""Manifests: numbered versions of a shard's list of files, each written once.

A version is published by a put that fails where its number is taken: of two writers that start from one version, one wins and the
other one has to look again.
"""

from __future__ import annotations

import json
import re
import zlib
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from umbel.errors import Damaged, Transient, UmbelError
from umbel.state.port import Fenced, OldState, Stamp
from umbel.state.runs.run import REMEDY
from umbel.state.runs.shard_names import FOREIGN, is_foreign, shard_name, store_mark
from umbel.state.stored_json import parse_stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from umbel.state.runs.files import ShardFiles

FOLDER = "manifest"
RETAINED = 2
"""Versions that are retained, with the files they name: a reader may have read one and not yet opened its files."""
_FORMAT = 1
_START = 64
_ATTEMPTS = 100
_NAME = re.compile(r"\d{12,}\.json")


@dataclass(frozen=True, order=True, slots=True)
class JournalPosition:
    """A position in a shard's journal: file number and offset."""

    number: int = 1
    offset: int = _START

    @property
    def next_object(self) -> int:
        """The number of the object with the record that follows, in a bucket."""
        return self.number + (self.offset > _START)


@dataclass(frozen=True, slots=True)
class RunPart:
    """One file of a run.

    Args:
        name: of the file.
        rows: number of rows.
        size: in bytes.
        low: the lowest hash.
        high: the highest hash.
    """

    name: str
    rows: int
    size: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run: files with ascending, disjoint ranges of hashes.

    Args:
        tier: 0 for a flushed run, one more for each merge.
        parts: its files.
    """

    tier: int
    parts: tuple[RunPart, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(part.rows for part in self.parts)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """A record before the journal's position that its batch may still replace.

    Args:
        number: of the journal's file.
        start: offset of the record.
        end: offset after it.
        state_ids: the operators for which it still counts.
    """

    number: int
    start: int
    end: int
    state_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WrittenRuns:
    """The runs that maintenance has written, since the shard was made.

    Args:
        flushes: how often rows in memory were written as runs.
        flushed: their bytes.
        merges: how often runs were merged.
        merged: the bytes of the runs that merges wrote.
    """

    flushes: int = 0
    flushed: int = 0
    merges: int = 0
    merged: int = 0

    @property
    def amplification(self) -> float:
        """The bytes written by maintenance for each byte that was flushed.

        1 if nothing was flushed.
        """
        return (self.flushed + self.merged) / self.flushed if self.flushed else 1.0

    def __add__(self, other: WrittenRuns) -> WrittenRuns:
        return WrittenRuns(
            self.flushes + other.flushes,
            self.flushed + other.flushed,
            self.merges + other.merges,
            self.merged + other.merged,
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """A version of a shard's list of files.

    Args:
        version: its number, from 1; 0 before the first.
        position: records of the journal from here on count.
        live: earlier records that count, too.
        stamps: the last write of each state id at the position.
        final: the last batch and step of each state id that cannot be replaced by a batch that is run again.
        horizons: of tables, in µs.
        dropped: where each deleted state id was deleted; its earlier records do not count.
        runs: of each table, oldest first.
        written: by maintenance so far.
        shard: the name of the shard; empty for a shard outside of stores, and where an older version wrote it.
        store: the identity of the store; empty for the same, and where it was not known yet.
    """

    version: int = 0
    position: JournalPosition = field(default_factory=JournalPosition)
    live: tuple[LiveRecord, ...] = ()
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    final: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    horizons: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, JournalPosition] = field(default_factory=dict)
    runs: Mapping[str, tuple[RunEntry, ...]] = field(default_factory=dict)
    written: WrittenRuns = field(default_factory=WrittenRuns)
    shard: str = ""
    store: str = ""

    @property
    def names(self) -> set[str]:
        """The names of all run files."""
        return {part.name for entries in self.runs.values() for entry in entries for part in entry.parts}

    @property
    def journals(self) -> set[int]:
        """The numbers of the journal's files before the position that still count."""
        return {record.number for record in self.live}

    def pack(self) -> bytes:
        """Return the bytes of its file."""
        data = json.dumps(_encoded(self), separators=(",", ":")).encode()
        return b"%08x\n%b" % (zlib.crc32(data), data)

    @classmethod
    def unpack(cls, data: bytes, name: str) -> Manifest:
        """Return the manifest of a file's bytes.

        Args:
            data: the bytes.
            name: of the file, without its folder.

        Raises:
            Damaged: they differ from their checksum.
        """
        found = _parsed(data, name)
        if _name(found.version) != name:
            raise Damaged(f"the manifest {name} of the state is damaged: it is version {found.version}", hint=REMEDY)
        return found

    def without(self, state_id: str, position: JournalPosition) -> Manifest:
        """Return the manifest after the deletion of a state id.

        Args:
            state_id: the deleted one.
            position: the end of the journal.
        """
        own = f"{state_id}/"
        live = [replace(each, state_ids=tuple(i for i in each.state_ids if i != state_id)) for each in self.live]
        return replace(
            self,
            live=tuple(each for each in live if each.state_ids),
            stamps={name: each for name, each in self.stamps.items() if name != state_id},
            final={name: each for name, each in self.final.items() if name != state_id},
            horizons={table: each for table, each in self.horizons.items() if not table.startswith(own)},
            dropped={**self.dropped, state_id: position},
            runs={table: each for table, each in self.runs.items() if not table.startswith(own)},
        )

    def has_same_journal(self, other: Manifest) -> bool:
        """Return True if the same records of the journal count."""
        return (self.position, self.live, self.dropped) == (other.position, other.live, other.dropped)


def read_latest(files: ShardFiles, known: Manifest | None = None) -> Manifest:
    """Return the latest version.

    Args:
        files: of the shard.
        known: a version read before; returned if it is still the latest.

    Raises:
        Damaged: the latest version differs from its checksum.
    """
    if known is not None and _is_latest(files, known.version):
        return known
    for _ in range(_ATTEMPTS):
        names = versions(files)
        if not names:
            return Manifest()
        try:
            return read_version(files, names[-1])
        except FileNotFoundError:  # newer ones were published meanwhile, and it was deleted
            continue
    raise Damaged("the manifests of a shard of the state cannot be read", hint=REMEDY)


def publish(files: ShardFiles, manifest: Manifest) -> Manifest:
    """Write the next version, and return it.

    Args:
        files: of the shard.
        manifest: its content, with the version it was made from.

    Raises:
        Fenced: another writer has published a version since then.
    """
    store = files.store.known() or manifest.store
    found = replace(manifest, version=manifest.version + 1, shard=shard_name(files), store=store)
    is_new = files.put_new(name_of(found.version), found.pack())
    if not is_new or versions(files)[-1] != _name(found.version):
        raise Fenced(f"version {found.version} of a shard's manifest was published by another writer")
    with suppress(Transient):  # the version is there, and the next one deletes them
        for name in versions(files)[:-RETAINED]:
            files.delete(f"{FOLDER}/{name}")
    return found


def retained(files: ShardFiles) -> list[Manifest]:
    """Return the versions whose files have to stay.

    Raises:
        Fenced: another process publishes newer ones.
    """
    found = []
    for name in versions(files)[-RETAINED:]:
        try:
            found.append(read_version(files, name))
        except FileNotFoundError as error:
            raise Fenced(f"the manifest {name} was deleted by another process") from error
    return found


def read_version(files: ShardFiles, name: str) -> Manifest:
    """Return a version by the name of its file.

    Raises:
        Damaged: it differs from its checksum, or is that of another shard or store.
        FileNotFoundError: it was deleted.
    """
    found, own = Manifest.unpack(files.read(f"{FOLDER}/{name}"), name), shard_name(files)
    if own and found.shard not in ("", own):
        raise Damaged(f"the manifest {name} of the state in {files} is damaged: it is of {found.shard}", hint=REMEDY)
    if found.store and is_foreign(files.store, store_mark(found.store)):
        raise Damaged(f"the manifest {name} of the state in {files} is damaged: {FOREIGN}", hint=REMEDY)
    return found


def versions(files: ShardFiles) -> list[str]:
    """Return the names of the versions' files, without their folder, ascending.

    Other files in the folder are left out: some storages list what they are still writing, under a name of their own.
    """
    return [name for name in files.list(FOLDER) if _NAME.fullmatch(name)]


def name_of(version: int) -> str:
    """Return the name of a version's file in its shard."""
    return f"{FOLDER}/{_name(version)}"


def _name(version: int) -> str:
    return f"{version:012d}.json"


def _is_latest(files: ShardFiles, version: int) -> bool:
    if not version:
        return not versions(files)
    # Versions are deleted in order: where this one exists, the next one has not been deleted, either.
    is_last = files.size(f"{FOLDER}/{_name(version + 1)}") is None
    return is_last and files.size(f"{FOLDER}/{_name(version)}") is not None


def _encoded(manifest: Manifest) -> dict[str, Any]:
    position = manifest.position
    return {
        "format": _FORMAT,
        "version": manifest.version,
        "position": [position.number, position.offset],
        "live": [[each.number, each.start, each.end, list(each.state_ids)] for each in manifest.live],
        "stamps": {name: [each.epoch, each.batch, each.step] for name, each in manifest.stamps.items()},
        "final": {name: list(each) for name, each in manifest.final.items()},
        "horizons": dict(manifest.horizons),
        "dropped": {name: [each.number, each.offset] for name, each in manifest.dropped.items()},
        "runs": {
            table: [[run.tier, [[p.name, p.rows, p.size, p.low, p.high] for p in run.parts]] for run in entries]
            for table, entries in manifest.runs.items()
        },
        "written": [getattr(manifest.written, each.name) for each in fields(WrittenRuns)],
        "shard": manifest.shard,
        "store": manifest.store,
    }


def _parsed(data: bytes, name: str) -> Manifest:
    crc, _, text = data.partition(b"\n")
    if crc != b"%08x" % zlib.crc32(text):
        raise Damaged(f"the manifest {name} of the state is damaged: it differs from its checksum", hint=REMEDY)
    try:
        return _decoded(parse_stored(text))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        if isinstance(error, UmbelError):
            raise
        raise Damaged(f"the manifest {name} of the state is damaged: {error!r:.100}", hint=REMEDY) from error


def _decoded(found: dict[str, Any]) -> Manifest:
    if found["format"] != _FORMAT:
        raise OldState.found(f"format {found['format']} of manifests", f"format {_FORMAT}")
    return Manifest(
        version=found["version"],
        position=JournalPosition(*found["position"]),
        live=tuple(LiveRecord(number, start, end, tuple(ids)) for number, start, end, ids in found["live"]),
        stamps={state_id: Stamp(*each) for state_id, each in found["stamps"].items()},
        final={state_id: (each[0], each[1]) for state_id, each in found["final"].items()},
        horizons=found["horizons"],
        dropped={state_id: JournalPosition(*each) for state_id, each in found["dropped"].items()},
        runs={
            table: tuple(RunEntry(tier, tuple(RunPart(*part) for part in parts)) for tier, parts in entries)
            for table, entries in found["runs"].items()
        },
        written=WrittenRuns(*found.get("written", ())),
        shard=found.get("shard", ""),
        store=found.get("store", ""),
    )
